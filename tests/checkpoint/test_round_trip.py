"""What is saved comes back bit for bit."""

import collections
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import time
import types
import zipfile
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp import checkpoint
from bsatnp.bias import AbstractBias, RBFNetwork
from bsatnp.checkpoint import CheckpointError
from bsatnp.groups import On, Translation
from bsatnp.likelihoods import CategoricalHead, GaussianHead
from bsatnp.models import BSATNP
from bsatnp.tasks import Points, Task


def test_everything_comes_back_bit_for_bit(tmp_path, everything, classes, same_bits):
    model = everything()
    checkpoint.save(tmp_path / "m.npz", model)
    loaded = checkpoint.load(tmp_path / "m.npz", classes=classes)
    assert type(loaded) is everything
    for field in ("weight", "half", "count", "flags", "key", "layers", "table"):
        assert same_bits(getattr(loaded, field), getattr(model, field)), field
    assert (loaded.inner, loaded.names, loaded.missing) == (model.inner, model.names, None)
    assert repr(loaded.plain) == repr(model.plain)  # also tells -0.0 from 0.0
    assert loaded.activation.func is jax.nn.gelu and loaded.activation.keywords == {"approximate": True}
    assert isinstance(loaded.flags, np.ndarray) and isinstance(loaded.weight, jax.Array)
    assert same_bits(checkpoint.load(tmp_path / "m.npz", like=model), model), (
        "with `like`, also the structure is the same"
    )


def test_same_bits_can_fail(everything, same_bits):
    model = everything()
    flipped = eqx.tree_at(lambda m: m.weight, model, jnp.where(model.weight == 0, 0.0, model.weight))
    assert not same_bits(model.weight, flipped.weight), "-0.0 and 0.0 must differ"


def test_equal_models_give_equal_files_that_numpy_reads(tmp_path, everything, monkeypatch):
    checkpoint.save(tmp_path / "a", everything(), extra={"units": {"s": "km"}})
    monkeypatch.setattr(time, "localtime", lambda *_: time.struct_time((2040, 1, 1, 0, 0, 0, 6, 1, 0)))
    checkpoint.save(tmp_path / "b", everything(), extra={"units": {"s": "km"}})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    arrays = np.load(tmp_path / "a", allow_pickle=False)
    np.testing.assert_array_equal(arrays["layers/0/weight"], [[0.5, -0.25]])
    assert json.loads(arrays["__header__"].tobytes())["kind"] == "model"
    with zipfile.ZipFile(tmp_path / "a") as file:
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}


def test_extra_is_kept_and_must_be_json(tmp_path, everything):
    extra = {"scale": {"mean": [0.1, -2.0], "std": [1e-300, 3.0]}, "units": {"t": "s"}, "n": 3, "none": None}
    checkpoint.save(tmp_path / "m", everything(), extra=extra)
    head = checkpoint.header(tmp_path / "m")
    assert head["extra"] == extra and head["version"] == checkpoint.FORMAT_VERSION == 1
    deep: dict = {}
    for _ in range(10_000):
        deep = {"a": deep}
    for wrong in ({"a": (1, 2)}, {"a": float("nan")}, {1: "a"}, {"a": np.float32(1)}, deep):
        with pytest.raises(CheckpointError, match="`extra` must be a JSON object"):
            checkpoint.save(tmp_path / "m", everything(), extra=wrong)  # pyright: ignore
    assert checkpoint.header(tmp_path / "m")["extra"] == extra, "a failed save must leave the file"


def test_parts_that_cannot_be_saved_are_named(tmp_path):
    class Odd(eqx.Module):
        part: dict

    for part in (lambda x: x, object(), {1, object()}):
        with pytest.raises(CheckpointError, match="`part/inner/0"):
            checkpoint.save(tmp_path / "m", Odd({"inner": [part]}))
    assert list(tmp_path.iterdir()) == []


def test_numpy_scalars_dates_and_named_functions(tmp_path, same_bits):
    class Odd(eqx.Module):
        scalar: np.float32
        dates: np.ndarray
        kind: np.dtype = eqx.field(static=True)
        function: object = eqx.field(static=True)
        mlp: eqx.nn.MLP

    dates = np.array(["2020-01-01T00:00:30", "NaT"], "datetime64[ns]")
    mlp = eqx.nn.MLP(1, 2, 3, 1, jax.nn.silu, key=jax.random.key(1))
    model = Odd(np.float32(1.5), dates, np.dtype("int8"), _double, mlp)
    checkpoint.save(tmp_path / "m", model)
    with pytest.raises(CheckpointError, match="function .*_double, which must be passed in `classes`"):
        checkpoint.load(tmp_path / "m", classes=(Odd,))
    with pytest.raises(ValueError, match="`classes` must be classes and functions, got 3"):
        checkpoint.load(tmp_path / "m", classes=(Odd, 3))
    loaded = checkpoint.load(tmp_path / "m", classes=(Odd, _double))
    assert same_bits((loaded.scalar, loaded.dates), (model.scalar, dates)) and loaded.kind == np.int8
    assert loaded.function is _double
    x = jnp.asarray([0.3])
    assert same_bits(loaded.mlp(x), mlp(x))


@jax.jit
def _halved(x):
    return x / 2


@pytest.mark.parametrize(("function", "classes"), [(jnp.arctan, ()), (jax.nn.hard_swish, ()), (_halved, (_halved,))])
def test_functions_that_jax_has_wrapped(function, classes, tmp_path, same_bits):
    mlp = eqx.nn.MLP(1, 2, 3, 1, function, key=jax.random.key(1))
    checkpoint.save(tmp_path / "m", mlp)
    x = jnp.asarray([0.3])
    assert same_bits(checkpoint.load(tmp_path / "m", classes=classes)(x), mlp(x))


def test_names_that_look_like_paths(tmp_path, same_bits):
    """No two of them may become one."""
    one, two = np.ones(2), np.zeros(2)
    for tree in ({"a/b": one, "a": {"b": two}}, {"~1": one, "/": two}, {"~": one, "~0": two}):
        checkpoint.save_state(tmp_path / "s", tree)
        assert same_bits(checkpoint.load_state(tmp_path / "s", tree), tree)


def test_host_arrays_come_back_whatever_their_order_in_memory(tmp_path, same_bits):
    rows = np.arange(6.0).reshape(2, 3)
    for array in (rows.T, rows[:, ::2], rows.astype(jnp.bfloat16).T):
        checkpoint.save_state(tmp_path / "s", {"a": array})
        assert same_bits(checkpoint.load_state(tmp_path / "s", {"a": array}), {"a": array})


def test_host_arrays_that_were_loaded_can_be_written(tmp_path, everything, classes):
    checkpoint.save(tmp_path / "m", everything())
    loaded = checkpoint.load(tmp_path / "m", classes=classes)
    loaded.flags[0, 1] = True
    assert loaded.flags.all()


def test_a_class_of_the_package_that_moved_is_found(tmp_path, monkeypatch, same_bits):
    head = GaussianHead(2)
    checkpoint.save(tmp_path / "m", head)
    monkeypatch.setattr(GaussianHead, "__module__", "bsatnp.elsewhere")
    assert same_bits(checkpoint.load(tmp_path / "m"), head)


def test_of_two_classes_of_one_name_none_is_taken_for_another(tmp_path):
    def made(module, sign):
        class Wave(eqx.Module):
            def __call__(self):
                return sign

        Wave.__module__, Wave.__qualname__ = module, "Wave"
        return Wave

    one, two, other = made("a", 1), made("b", -1), made("c", 0)
    checkpoint.save(tmp_path / "m", one())
    for classes in ([one, two], [two, one]):
        assert checkpoint.load(tmp_path / "m", classes=classes)() == 1
    assert checkpoint.load(tmp_path / "m", classes=[two])() == -1  # it has moved to another module
    with pytest.raises(CheckpointError, match="needs the class a.Wave"):
        checkpoint.load(tmp_path / "m", classes=[two, other])


def test_tasks_of_the_package_need_no_classes(tmp_path, same_bits):
    points = Points({"s": np.arange(6.0).reshape(3, 2)}, np.array([[1.0], [np.nan], [2.0]]))
    task = Task(points, points)
    checkpoint.save(tmp_path / "m", task)
    assert same_bits(checkpoint.load(tmp_path / "m"), task)


def test_the_paper_model_needs_no_classes(tmp_path, same_bits):
    bias = RBFNetwork(On("s", Translation(2)), heads=2, basis=3)
    sizes: dict[str, Any] = dict(depth=2, dim=4, heads=2, width=4, embed_sizes=(4,), hidden=4)
    for head in (GaussianHead(2), CategoricalHead(3)):
        model = BSATNP(bias=bias, head=head, key=jax.random.key(0), **sizes)
        checkpoint.save(tmp_path / "m", model)
        assert same_bits(checkpoint.load(tmp_path / "m"), model), "arrays, structure and configuration"
    sizes["dim"] = 8
    wider = BSATNP(bias=bias, head=head, key=jax.random.key(0), **sizes)
    with pytest.raises(CheckpointError, match=r"`.*` is float.. \(.*\) in the file, but float.. \(.*\) here"):
        checkpoint.load(tmp_path / "m", like=wider)


class Checked(AbstractBias):
    """A bias whose check holds for one block, and not for the stack of them that a model keeps."""

    weight: jax.Array

    def __check_init__(self):
        if self.weight.ndim != 1:
            raise ValueError(f"`weight` must be (head,), got {self.weight.shape}.")

    @property
    def groups(self):
        return (On("s", Translation(2)),)

    def __call__(self, p, q):
        return -jnp.exp(self.weight) * jnp.square(p["s"] - q["s"]).sum()


def test_a_stack_of_modules_is_checked_as_each_of_them_is(tmp_path, same_bits):
    sizes: dict[str, Any] = dict(depth=2, dim=4, heads=2, width=4, embed_sizes=(4,), hidden=4)
    model = BSATNP(bias=Checked(jnp.zeros(2)), key=jax.random.key(0), **sizes)
    checkpoint.save(tmp_path / "m", model)
    assert same_bits(checkpoint.load(tmp_path / "m", classes=(Checked,)), model)
    wrong = eqx.tree_at(lambda b: b.weight, Checked(jnp.zeros(2)), jnp.zeros(()))
    checkpoint.save(tmp_path / "m", wrong)
    with pytest.raises(CheckpointError, match="`weight` must be"):
        checkpoint.load(tmp_path / "m", classes=(Checked,))


def test_the_order_of_a_dictionary_means_nothing(tmp_path, same_bits):
    class Named(eqx.Module):
        parts: dict

    one, other = (Named({name: jnp.full(2, ord(name)) for name in names}) for names in ("ab", "ba"))
    checkpoint.save(tmp_path / "m", one)
    assert same_bits(checkpoint.load(tmp_path / "m", like=other), one)
    with pytest.raises(CheckpointError, match=r"`parts` holds \['a', 'b'\] in the file, but \['b', 'c'\] here"):
        checkpoint.load(tmp_path / "m", like=Named({"c": jnp.zeros(2), "b": jnp.zeros(2)}))


def test_dictionaries_by_number_and_in_an_order(tmp_path, same_bits):
    """As `multi_transform` and `named_chain` of Optax have them."""
    state = {"by": {3: jnp.ones(2), -1: jnp.zeros(2)}, "in": collections.OrderedDict(b=jnp.ones(1), a=jnp.zeros(1))}
    checkpoint.save_state(tmp_path / "s", state)
    found = checkpoint.load_state(tmp_path / "s", state)
    assert same_bits(found, state) and list(found["in"]) == ["b", "a"]
    turned = state | {"in": collections.OrderedDict(reversed(state["in"].items()))}
    named = state | {"by": {"3": jnp.ones(2), "-1": jnp.zeros(2)}}
    for other in (turned, named, state | {"in": dict(state["in"])}):
        with pytest.raises(CheckpointError, match="in the file, but"):
            checkpoint.load_state(tmp_path / "s", other)


def test_a_replaced_file_keeps_its_mode_and_names_may_be_long(tmp_path, everything):
    path = tmp_path / ("m" * 250)
    checkpoint.save(path, everything())
    path.chmod(0o600)
    checkpoint.save(path, everything())
    assert path.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [path]
    checkpoint.check_writable(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path, everything, classes, same_bits):
    link, behind = tmp_path / "link", tmp_path / "behind"
    checkpoint.save(behind, everything(width=2))
    link.symlink_to(behind)
    checkpoint.save(link, everything())
    found = checkpoint.load(behind, classes=classes)
    assert link.is_symlink() and same_bits(found.weight, everything().weight)


@pytest.mark.parametrize(
    "part",
    [{0.5: 10}, collections.Counter("a"), 1j, b"a", collections.deque([1])],
    ids=lambda part: type(part).__name__,
)
def test_a_state_loses_no_values(tmp_path, part):
    with pytest.raises(CheckpointError, match="`part` must be an array, a plain value"):
        checkpoint.save_state(tmp_path / "state", {"part": part})
    assert list(tmp_path.iterdir()) == []


def test_attributes_beside_the_fields_are_refused(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Area:
        side: float

        def __post_init__(self):
            object.__setattr__(self, "squared", self.side**2)

        @functools.cached_property
        def twice(self):
            return 2 * self.side

    class Holds(eqx.Module):
        area: Any = eqx.field(static=True)

    area = Area(2.0)
    assert area.twice == 4.0
    with pytest.raises(
        CheckpointError, match=r"`area` must hold nothing but its fields to be saved, got \['squared'\]"
    ):
        checkpoint.save(tmp_path / "m", Holds(area))


def test_d2_training_state_with_typed_keys_and_closures(tmp_path, everything, same_bits):
    class Counter(NamedTuple):
        number: int
        values: list

    def state(seed, step):
        model = everything()
        optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=optax.cosine_decay_schedule(1e-3, 10))
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes types
            moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
        moments = jax.tree.map(lambda x: x + jnp.asarray(seed, x.dtype), moments)
        keys = jax.random.split(jax.random.key(seed, impl="rbg"), 3)
        closure = functools.partial(lambda x, y: x, 3.5)
        return {"m": model, "o": moments, "k": keys, "step": step, "c": Counter(step, [0.5]), "f": (closure, object())}

    written, like = state(1, 41), state(0, 0)
    checkpoint.save_state(tmp_path / "s", written)
    loaded = checkpoint.load_state(tmp_path / "s", like)
    assert same_bits(loaded["o"], written["o"]) and not same_bits(loaded["o"], like["o"])
    assert same_bits(loaded["m"].half, written["m"].half)
    assert loaded["step"] == 41 and isinstance(loaded["c"], Counter) and loaded["c"].number == 41
    assert loaded["f"] is not like["f"] and loaded["f"][1] is like["f"][1]
    draws = jax.vmap(lambda k: jax.random.normal(k))
    assert same_bits(draws(loaded["k"]), draws(written["k"]))


def _double(x):
    return 2 * x


class Screw:
    """A group of a user's own: attributes, and no base class."""

    dim = 3

    def __init__(self, pitch=2.0):
        self.pitch = pitch


NAMES = ("array", "dict", "list", "class", "fields", "float", "function", "opaque", "named", "partial", "dtype")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["zarr", {"array": "x"}, 2.5, [1, 2]], ids=str)
def test_names_of_parts_may_be_those_of_the_format(tmp_path, name, value):
    class Holds(eqx.Module):
        parts: dict = eqx.field(static=True)
        weight: jax.Array

    tree = {name: value, "x": np.arange(3)}
    checkpoint.save_state(tmp_path / "s", tree)
    loaded = checkpoint.load_state(tmp_path / "s", tree | {"x": np.zeros(3, int)})
    assert loaded[name] == value and (loaded["x"] == np.arange(3)).all()
    checkpoint.save(tmp_path / "m", Holds({name: value}, jnp.ones(2)))
    assert checkpoint.load(tmp_path / "m", classes=[Holds]).parts == {name: value}


class Tally:
    """Counts, in attributes alone."""

    def __init__(self, count):
        self.count, self.each = count, np.full(3, float(count))


def test_a_state_keeps_objects_of_attributes(tmp_path):
    checkpoint.save_state(tmp_path / "s", {"tally": Tally(3)})
    with pytest.raises(CheckpointError, match="`tally/count` is 3 in the file, but 0 here"):
        checkpoint.load_state(tmp_path / "s", {"tally": Tally(0)})
    like = Tally(3)
    like.each[:] = 0
    loaded = checkpoint.load_state(tmp_path / "s", {"tally": like})["tally"]
    assert loaded.count == 3 and (loaded.each == 3).all()


@pytest.mark.parametrize("part", [datetime.date(2024, 1, 2), range(3), pathlib.PurePath("a"), bytearray(b"a")])
def test_what_no_file_holds_is_refused_as_data_and_compared_as_configuration(tmp_path, part):
    class Holds(eqx.Module):
        part: Any = eqx.field(static=True)

    with pytest.raises(CheckpointError, match="`part` must be an array, a plain value"):
        checkpoint.save_state(tmp_path / "s", {"part": part})
    checkpoint.save_state(tmp_path / "s", {"m": Holds(part)})
    assert checkpoint.load_state(tmp_path / "s", {"m": Holds(part)})["m"].part == part
    other = {datetime.date: datetime.date(2024, 1, 3), range: range(4), bytearray: bytearray(b"b")}
    with pytest.raises(CheckpointError, match="`m/part` is .* in the file, but .* here"):
        checkpoint.load_state(tmp_path / "s", {"m": Holds(other.get(type(part), pathlib.PurePath("b")))})


def test_objects_of_attributes_alone(tmp_path):
    class Holds(eqx.Module):
        group: Any
        weight: jax.Array

    checkpoint.save(tmp_path / "m", Holds(Screw(3.5), jnp.ones(2)))
    with pytest.raises(CheckpointError, match="class .*Screw, which must be passed in `classes`"):
        checkpoint.load(tmp_path / "m", classes=[Holds])
    loaded = checkpoint.load(tmp_path / "m", classes=[Holds, Screw])
    assert type(loaded.group) is Screw and vars(loaded.group) == {"pitch": 3.5}

    class Counts(dict):
        """Holds more than its attributes."""

    class Called(Screw):
        def __call__(self):
            return self.pitch

    for part in (Counts(a=1), Called(), types.SimpleNamespace(a=1)):
        with pytest.raises(CheckpointError, match="`group` must be an array, a plain value"):
            checkpoint.save(tmp_path / "n", Holds(part, jnp.ones(2)))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    for save in (checkpoint.save, checkpoint.save_state):
        with pytest.raises(FileNotFoundError, match="There is no folder '.*none' for '.*none/m'"):
            save(tmp_path / "none" / "m", eqx.nn.Identity())


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="must be the name of a file, got a device or a pipe"):
        checkpoint.save_state(tmp_path / "pipe", {"a": 1})
    assert (tmp_path / "pipe").is_fifo()


def test_protected_files_stay(tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "m", eqx.nn.Identity())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="'.*m' is there and may not be written"):
        checkpoint.save(tmp_path / "m", eqx.nn.Identity())
