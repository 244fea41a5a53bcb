"""A run that is cut and continued equals the run that is not, bit for bit."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp import checkpoint
from bsatnp.bias.interface import AbstractGroupBias
from bsatnp.checkpoint import CheckpointError
from bsatnp.groups import On
from bsatnp.models import BSATNP
from bsatnp.train import fit, optimizer

ADAMW = optimizer(12)
ROOT = pathlib.Path(__file__).parents[2]


def rows(run):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in run.history]


@pytest.mark.parametrize("cut", [3, 6, 7])
def test_d3_cut_and_continued(line, stream, same_bits, tmp_path, cut):
    """Cut by a crash at step `cut`: between rows, between validations, and where the file is older than the crash."""
    arguments: dict[str, Any] = dict(
        steps=12, key=jax.random.key(4), validation=stream, validate_every=6, validation_batches=1, log_every=4,
        progress=False, optimizer=ADAMW,
    )  # fmt: skip
    whole = fit(line(), stream, **arguments)

    def crash(step, *, key):
        if step == cut:
            raise RuntimeError("crash")
        return stream(step, key=key)

    arguments |= {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 3}
    with pytest.raises(RuntimeError, match="crash"):
        fit(line(), crash, **arguments)
    steps = []
    again = fit(line(), lambda step, *, key: steps.append(step) or stream(step, key=key), **arguments)
    assert steps[:1] == [cut - cut % 3] and len(steps) > 0
    assert same_bits(again.model, whole.model) and same_bits(again.best, whole.best)
    assert rows(again) == rows(whole) and again.steps == 12
    assert not same_bits(again.best, again.model) or rows(whole)[-1]["validation_nll"] == min(
        row["validation_nll"] for row in rows(whole) if "validation_nll" in row
    )


def test_a_stopped_run_remembers_its_best_model(line, stream, same_bits, tmp_path):
    """Ascent makes every model worse than the one before, so that the first validated one is the best."""
    arguments: dict[str, Any] = dict(
        steps=6, key=jax.random.key(0), optimizer=optax.sgd(-0.05), validation=stream, validate_every=2,
        validation_batches=2, checkpoint=tmp_path / "run.npz", checkpoint_every=4, progress=False,
    )  # fmt: skip
    half = fit(line(), stream, callbacks=[lambda step, row, model: True], **arguments)
    again = fit(line(), stream, **arguments)
    assert half.steps == 2 and again.steps == 6 and again.history[0] == half.history[0]
    assert same_bits(again.best, half.best) and not same_bits(again.best, again.model)


class Mirror:
    """A group that is a plain class, as docs/groups.md has one."""

    dim = 2

    def sample(self, *, key):
        return jax.random.rademacher(key, (), float)

    def identity(self):
        return jnp.ones(())

    def compose(self, g, h):
        return g * h

    def inverse(self, g):
        return g

    def act(self, g, points):
        return g * points

    def invariants(self, p, q):
        return jnp.abs(p - q).sum()[None]


def test_a_group_of_ones_own_and_a_bias_that_checks_its_arrays(stream, same_bits, tmp_path):
    """The moments of an optimiser have the structure of the model, but nothing in them is a group or a length."""

    class Positive(AbstractGroupBias):
        group: Any
        length: jax.Array

        def __check_init__(self):
            if not (self.length > 0).all():
                raise ValueError("`length` must be positive.")

        def __call__(self, p, q):
            return -self.invariants(p, q) / self.length

    bias = Positive(On("s", Mirror()), jnp.ones(2))
    sizes = {"depth": 1, "dim": 8, "heads": 2, "width": 8, "hidden": 8, "embed_sizes": (8,)}
    model = BSATNP(bias=bias, **sizes, key=jax.random.key(0))
    run = {"steps": 4, "key": jax.random.key(1), "log_every": 2, "progress": False, "optimizer": ADAMW}
    whole = fit(model, stream, **run)
    saved = {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 2}
    assert fit(model, stream, callbacks=[lambda step, row, model: True], **saved, **run).steps == 2
    again = fit(model, stream, **saved, **run)
    assert again.steps == 4 and same_bits(again.model, whole.model)


def test_rates_in_the_state_of_an_optimiser_are_its_own(line, stream, tmp_path):
    saved = {"checkpoint": tmp_path / "run.npz", "key": jax.random.key(1), "progress": False, "steps": 2}
    adam = optax.inject_hyperparams(optax.adam)
    fit(line(), stream, optimizer=adam(learning_rate=1e-3), **saved)
    fit(line(), stream, optimizer=adam(learning_rate=1e-3), **saved)
    with pytest.raises(CheckpointError, match="`optimizer` must be the one that the checkpoint"):
        fit(line(), stream, optimizer=adam(learning_rate=1e-1), **saved)


def test_continuing_needs_the_whole_state(line, stream, same_bits, tmp_path):
    """A negative control: going on from the model alone forgets the moments, and ends elsewhere."""
    arguments: dict[str, Any] = dict(steps=8, key=jax.random.key(4), progress=False)
    whole = fit(line(), stream, **arguments)
    half = fit(line(), stream, log_every=4, callbacks=[lambda step, row, model: step == 4], **arguments)
    late = fit(half.model, lambda step, *, key: stream(step, key=key), **arguments)
    assert half.steps == 4 and not same_bits(late.model, whole.model)


def test_d3_stopped_by_a_callback_and_continued_for_the_paper_model(tiny, six, stream, same_bits, tmp_path):
    """Also with a jitted stream that draws from the key, and from another starting model of the same structure."""

    other = jax.tree.map(lambda x: 2 * x if eqx.is_inexact_array(x) else x, tiny)
    arguments: dict[str, Any] = dict(steps=6, key=jax.random.key(1), log_every=3, progress=False, optimizer=six)
    whole = fit(tiny, stream, **arguments)
    path = tmp_path / "run.npz"
    half = fit(tiny, stream, checkpoint=path, callbacks=[lambda step, row, model: True], **arguments)
    assert half.steps == 3 and not same_bits(half.model, whole.model)
    again = fit(other, stream, checkpoint=path, **arguments)
    assert same_bits(again.model, whole.model) and rows(again) == rows(whole)
    done = fit(other, lambda step, *, key: pytest.fail("a finished run draws nothing"), checkpoint=path, **arguments)
    assert same_bits(done.model, whole.model) and rows(done) == rows(whole) and done.steps == 6


def test_seconds_add_up(line, stream, tmp_path):
    def wait(step, *, key):
        time.sleep(0.02)
        return stream(step, key=key)

    arguments: dict[str, Any] = dict(
        steps=6, key=jax.random.key(0), log_every=3, progress=False, checkpoint=tmp_path / "run.npz"
    )
    first = fit(line(), wait, callbacks=[lambda step, row, model: True], **arguments)
    second = fit(line(), wait, **arguments)
    assert second.history[0] == first.history[0]
    assert second.history[1]["seconds"] > first.history[0]["seconds"] + 0.06


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"out": 2}}, r"`model/weight` is float.. \(2, 2\) in the file, but float.. \(2, 4\) here"),
        ({"steps": 20}, "`steps` must be 10, as in the checkpoint '.*run.npz', got 20"),
        ({"key": jax.random.key(1)}, "`key` must be the one that the checkpoint .* was written with, got another"),
        ({"optimizer": optax.sgd(0.1)}, "`optimizer"),
        ({"optimizer": optimizer(10, peak=0.5)}, "`optimizer` must be the one that the checkpoint"),
        ({"optimizer": optimizer(10, weight_decay=0.5)}, "`optimizer` must be the one that the checkpoint"),
        ({"validation": True}, "`validation` must be left out, as when the checkpoint '.*run.npz' was written"),
    ],
)
def test_another_run_is_refused(line, stream, tmp_path, changes, message):
    arguments: dict[str, Any] = {
        "steps": 10,
        "key": jax.random.key(0),
        "progress": False,
        "checkpoint": tmp_path / "run.npz",
    }
    stop = [lambda step, row, model: True]
    fit(line(), stream, optimizer=optimizer(10), callbacks=stop, log_every=1, **arguments)
    before = (tmp_path / "run.npz").read_bytes()
    model = line(**changes.pop("model", {}))
    if "validation" in changes:
        changes["validation"] = stream
    with pytest.raises(CheckpointError, match=message):
        fit(model, stream, **(arguments | {"optimizer": optimizer(10)} | changes))
    assert (tmp_path / "run.npz").read_bytes() == before


def test_rates_inside_a_compiled_function_are_part_of_the_optimiser(line, stream, tmp_path):
    def table(values):
        return optax.chain(optax.scale_by_schedule(jax.jit(lambda count: jnp.asarray(values)[count])), optax.scale(-1))

    def run(values, **more):
        options = {"steps": 4, "key": jax.random.key(0), "progress": False, "checkpoint": tmp_path / "run.npz"}
        return fit(line(), stream, optimizer=table(values), log_every=1, **options, **more)

    run(np.full(4, 0.1, np.float32), callbacks=[lambda step, row, model: True])
    with pytest.raises(CheckpointError, match="`optimizer` must be the one"):
        run(np.full(4, 0.2, np.float32))
    assert run(np.full(4, 0.1, np.float32)).steps == 4


def test_a_state_of_something_else_is_refused(line, stream, tmp_path):
    checkpoint.save(tmp_path / "model", line())
    checkpoint.save_state(tmp_path / "state", {"a": 1})
    for name, message in (("model", "must hold a state, got a model"), ("state", "the tree holds")):
        with pytest.raises(CheckpointError, match=message):
            fit(line(), stream, steps=1, key=jax.random.key(0), checkpoint=tmp_path / name, progress=False)


SCRIPT = """
import sys
import jax, jax.numpy as jnp
from bsatnp.likelihoods import GaussianHead
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points, Task
from bsatnp.train import fit

class Big(AbstractModel):
    head: GaussianHead
    weight: jax.Array
    embedded, groups = {}, ()

    def condition(self, ctx):
        def answer(tgt):
            hidden = jnp.tanh(tgt.index["s"] @ self.weight).mean(1, keepdims=True)
            return self.head(jnp.concatenate([hidden, hidden], 1))

        return answer

@jax.jit
def draw(key):
    s = jax.random.uniform(key, (2, 6, 2))
    return Task(Points({"s": s}, s[..., :1]), Points({"s": s}, s[..., 1:]))

def loss(model, task):
    return jnp.mean((jax.vmap(model)(task.ctx, task.tgt).mean - task.tgt.f) ** 2)

def run(path, steps=150):
    model = Big(GaussianHead(), jax.random.normal(jax.random.key(0), (2, 20_000)))
    return fit(model, lambda step, *, key: draw(key), steps=steps, key=jax.random.key(1), loss=loss, checkpoint=path,
               checkpoint_every=1, log_every=1, progress=False)

if __name__ == "__main__":
    run(sys.argv[1])
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("killed") / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def run(script):
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(script.read_text(), str(script), "exec"), names)
    return names["run"]


@pytest.fixture(scope="module")
def uncut(run):
    return run(None)


def start_and_kill(script, path, rng):
    """Start the script, kill it at a random moment once it writes, and see that a whole file is there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script), str(path)], env=environment, stderr=subprocess.PIPE)
    try:
        start = checkpoint.header(path)["extra"] if path.exists() else None
        written = path.stat().st_mtime_ns if path.exists() else 0
        deadline = time.time() + 240
        while (path.stat().st_mtime_ns if path.exists() else 0) == written:
            assert process.poll() is None and time.time() < deadline, process.stderr.read().decode()  # pyright: ignore
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()  # pyright: ignore
    assert start is None or checkpoint.header(path)["extra"] == start
    with np.load(path) as arrays:
        assert all(np.asarray(arrays[name]).size >= 0 for name in arrays.files)  # each passes its checksum


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_d3_killed_while_it_writes(script, run, uncut, tmp_path, same_bits, times):
    """The file is written after every update; whatever moment the process dies in, the last whole state is there."""
    rng, path = random.Random(times), tmp_path / "run.npz"
    for _ in range(times):
        start_and_kill(script, path, rng)
        if _step(path) == 150:
            path.unlink()
    resumed = run(path)
    assert same_bits(resumed.model, uncut.model) and rows(resumed) == rows(uncut) and len(rows(uncut)) == 150
    assert eqx.tree_equal(resumed.model, uncut.model)


def _step(path):
    return checkpoint.header(path)["tree"]["dict"]["step"]
