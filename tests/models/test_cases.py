"""Faults that users of like software met, tried on every model of the registry."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsatnp import checkpoint
from bsatnp.checkpoint import CheckpointError
from bsatnp.groups import SO3, factors
from bsatnp.likelihoods import GaussianHead
from bsatnp.tasks import Points
from bsatnp.testing import perturbed
from bsatnp.train import fit
from tests.models.every import CTX, N_CTX, TGT, F, S, T, answer, finite, losses, near, of, pair, points
from tests.registry import MODELS, TABLE, close, predict


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """Every model of the registry, parameters moved so that none hides anything."""
    return perturbed(MODELS[request.param][0](), key=jax.random.key(3))


def on_sphere(model):
    return any(isinstance(factor.group, SO3) for group in model.groups for factor in factors(group))


def test_every_model_has_a_constructor_with_options():
    """The rows about heads and widths go over the table: no kind of model is missing there."""
    assert {type(make()) for make, _ in MODELS.values()} == {type(row.model) for row in TABLE.values()}


def test_a3_a_task_without_context_in_a_batch(model):
    keep = np.ones((2, N_CTX), bool)
    keep[1] = False
    loss, grads = losses(model, pair(mask=keep))
    assert finite((loss, grads))
    alone, grads_alone = losses(model, pair())
    assert near(of((loss, grads), 0), of((alone, grads_alone), 0))
    assert not near(loss[1], loss[0])


def test_a4_a12_c8_padding_that_holds_anything_is_dropped(model):
    """The same mask in every model: rows in the middle and at the end that hold NaN and infinity."""
    keep = np.array([True, False, True, True, False])
    clean = pair(mask=[keep, keep])
    hidden = jnp.asarray(~keep)[None, :, None]
    dirty = eqx.tree_at(
        lambda task: (task.ctx.index, task.ctx.f),
        clean,
        (
            {name: jnp.where(hidden, jnp.nan, x) for name, x in clean.ctx.index.items()},
            jnp.where(hidden, jnp.inf, clean.ctx.f),
        ),
    )
    loss, grads = losses(model, dirty)
    assert finite((loss, grads)) and near((loss, grads), losses(model, clean))
    order = np.concatenate([np.flatnonzero(keep), np.flatnonzero(~keep), np.arange(N_CTX, 8)])
    moved = pair(s=[S[order]] * 2, t=[T[order]] * 2, f=[F[order]] * 2, mask=[np.arange(N_CTX) < 3] * 2)
    again, grads_again = losses(model, moved)
    assert near((loss, grads[0], grads[2]), (again, grads_again[0], grads_again[2]))
    whole, _ = losses(model, pair())
    assert not near(loss, whole)


def test_a19_integer_components_and_values(model):
    whole = np.arange(8)[::-1, None].copy()
    values = np.arange(8)[:, None] % 3
    expected = answer(model, t=whole.astype(float), f=values.astype(float))
    for kind in (np.int64, np.int32, np.uint8, np.int8):
        assert close(answer(model, t=whole.astype(kind), f=values), expected), kind
    assert close(answer(model, t=whole.astype(float), f=values.astype(np.uint8)), expected)
    assert not close(answer(model, t=2 * whole, f=values), expected, atol=1e-4)


def test_a19_integers_on_the_device_through_grad(model):
    index = lambda rows: {"s": jnp.asarray(S[rows], float), "t": jnp.arange(8)[rows, None]}  # noqa: E731
    ctx, tgt = Points(index(CTX), jnp.arange(5)[:, None]), Points(index(TGT))

    def loss(model):
        return model(ctx, tgt).log_prob(jnp.asarray(F[TGT], float)).sum()

    shapes = eqx.filter_eval_shape(eqx.filter_grad(loss), model)
    assert [x.shape for x in jax.tree.leaves(shapes)] == [
        x.shape for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    ]


def test_a21_no_context_no_rows_and_no_targets(model):
    masked = predict(model, points(CTX, f=F, mask=np.zeros(N_CTX, bool)), points(TGT))
    none = predict(model, points(slice(0, 0), f=F), points(TGT))
    assert finite(none) and close(masked, none)
    assert not close(answer(model), none, atol=1e-4)
    empty = predict(model, points(CTX, f=F), points(slice(0, 0)))
    assert empty.mean.shape == empty.std.shape == (0, 1)


@pytest.fixture(scope="module")
def sgd():
    return optax.sgd(1e-3, momentum=0.9)


def test_a24_d3_steps_without_warnings_cut_and_continued(model, sgd, tmp_path):
    """Six steps on a CPU warn of nothing; three, a file and three more end at the same bits."""
    batch = pair()
    options = {"steps": 6, "log_every": 3, "progress": False, "key": jax.random.key(1), "optimizer": sgd}
    stream = lambda step, *, key: eqx.tree_at(lambda b: b.ctx.f, batch, batch.ctx.f + step)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = fit(model, stream, **options)
        half = fit(model, stream, checkpoint=tmp_path / "run", callbacks=[lambda *_: True], **options)
        again = fit(model, stream, checkpoint=tmp_path / "run", **options)
    assert half.steps == 3 and whole.steps == again.steps == 6
    assert np.isfinite([row["loss"] for row in whole.history]).all()
    same = [a.tobytes() == b.tobytes() for a, b in zip(_host(whole.model), _host(again.model), strict=True)]
    assert all(same) and finite(whole.model) and near(again.model, whole.model) and not close(half.model, whole.model)


def _host(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def test_b1_points_that_coincide(model):
    """A target at a context point, two context points at one place, everything at one place."""
    s, t = S.copy(), T.copy()
    s[5], t[5], s[1], t[1] = s[0], t[0], s[2], t[2]
    loss, grads = losses(model, pair(s=(s, np.full_like(S, 0.5)), t=(t, np.full_like(T, 0.5))))
    assert finite((loss, grads))


def test_b3_a_latitude_beyond_the_pole(model):
    s = S.copy()
    s[2, 1] = 120.0
    if on_sphere(model):
        for rows in (s, np.concatenate([s[5:], s[:5]])):
            with pytest.raises(ValueError, match=r"\(longitude, latitude\) in degrees.* 120, beyond 90"):
                answer(model, s=rows)
    else:
        answer(model, s=np.where(s == 120.0, 5.0, s))  # plain coordinates are no latitudes


def test_b4_longitudes_and_poles_have_several_names(model):
    if not on_sphere(model):
        pytest.skip("not a model of the sphere")
    s = np.array([[359.9, 10], [180, -20], [77, 90], [12, -90], [-0.1, 5], [-180, 30], [45, 90], [200, 0]], float)
    other = np.array([[-0.1, 10], [-180, -20], [-3, 90], [250, -90], [359.9, 5], [180, 30], [0, 90], [-160, 0]], float)
    assert close(answer(model, s=other), answer(model, s=s), atol=5e-5)


SECONDS = np.array([[0], [30], [60], [90], [20], [15], [61], [10]])
TIMES = {
    "Unix seconds": 1.7e9 + SECONDS,
    "whole seconds": 1_700_000_000 + SECONDS,
    "unsigned seconds": (1_700_000_000 + SECONDS).astype(np.uint32),
    "datetime64[s]": np.datetime64("2023-11-14T22:13:20") + SECONDS.astype("m8[s]"),
    "datetime64[ns]": (np.datetime64("2023-11-14T22:13:20") + SECONDS.astype("m8[s]")).astype("M8[ns]"),
}


def test_b6_times_keep_their_differences_or_are_refused(model, x64):
    """Nothing but the lag counts for a model that sees shifts; one that embeds the time says that it cannot."""
    expected = answer(model, t=SECONDS.astype(float))
    for name, times in TIMES.items():
        if "t" in model.shift_invariant:
            assert close(answer(model, t=times), expected), name
        elif not x64 and times.dtype.kind in "fM":
            with pytest.raises(ValueError, match="Component 't' loses differences of .* in float32"):
                answer(model, t=times)


def test_b6_targets_in_another_unit_than_the_context(model):
    """Hours beside whole days, floats beside integers: the coarser of them is no reason to round the other."""
    hours = np.datetime64("2024-03-01T00") + np.arange(8)[:, None] * np.timedelta64(7, "h")
    days = np.datetime64("2024-03-02") + np.arange(3)[:, None]
    same = np.concatenate([hours[CTX].astype("M8[s]"), days.astype("M8[s]")])
    ctx, tgt = {"s": S[CTX], "t": hours[CTX]}, {"s": S[TGT], "t": days}
    if "t" in model.shift_invariant:
        assert close(predict(model, Points(ctx, F[CTX]), Points(tgt)), answer(model, t=same))
    halves, whole = np.arange(5)[:, None] + 0.5, np.arange(3)[:, None]
    ctx, tgt = {"s": S[CTX], "t": halves}, {"s": S[TGT], "t": whole}
    floats = np.concatenate([halves, whole.astype(float)])
    assert close(predict(model, Points(ctx, F[CTX]), Points(tgt)), answer(model, t=floats))


def test_b6_days_months_and_years(model):
    """The same dates by any unit; a model that has a grid looks at them on the host."""
    years = np.array([[2019], [2020], [2021], [2022], [2023], [2024], [2020], [2022]]) - 1970
    expected = answer(model, t=years.astype("M8[Y]").astype("M8[D]"))
    for unit in ("M8[Y]", "M8[M]", "M8[s]"):
        assert close(answer(model, t=years.astype("M8[Y]").astype(unit)), expected)


def test_b7_eastings_and_northings_keep_their_differences_or_are_refused(model, x64):
    local = np.round(S, 1) / 10
    far = local + np.array([500000.1, 5e6])
    if "s" in model.shift_invariant:
        assert close(answer(model, s=far), answer(model, s=local))
        assert close(answer(model, s=local - 3e5), answer(model, s=local))
    elif not x64 or on_sphere(model):
        with pytest.raises(ValueError, match="Component 's' loses differences|beyond 90"):
            answer(model, s=far)


@pytest.mark.parametrize(
    ("ctx", "tgt", "says"),
    [
        ({"s": S[CTX].T, "t": T[CTX]}, None, r"'s' has \(2,\), 't' has \(5,\)"),
        ({"s": S[None, CTX], "t": T[None, CTX]}, None, r"`f` must have axes \(point, out\) = \(1, 5, 'out'\)"),
        ({"s": S[CTX, 0], "t": T[CTX]}, None, r"Component 's' must have axes \(point, dim\), got shape \(5,\)"),
        ({"s": T[CTX], "t": T[CTX]}, None, r"Component 's' .*width 1|Component 's' must have shape \(point, 2\)"),
        (None, {"s": S[None, TGT], "t": T[None, TGT]}, r"one task with axes \(point, dim\), got batch axes \(1,\)"),
        (None, {"s": S[TGT], "t": T[CTX]}, r"'s' has \(3,\), 't' has \(5,\)"),
        (None, {"s": S[TGT]}, r"`index` must have components|`tgt` must have the components"),
    ],
)
def test_b8_axes_that_do_not_fit(model, ctx, tgt, says):
    right = {"s": S[CTX], "t": T[CTX]}, {"s": S[TGT], "t": T[TGT]}
    with pytest.raises(ValueError, match=says):
        model(Points(ctx or right[0], F[CTX]), Points(tgt or right[1]))


def test_b8_values_that_do_not_fit(model):
    for f, says in ((F[CTX, 0], r"`f` must have axes"), (F[CTX].T, "`f` must have axes"), (F, "`f` must have axes")):
        with pytest.raises(ValueError, match=says):
            model(Points({"s": S[CTX], "t": T[CTX]}, f), points(TGT))
    with pytest.raises(ValueError, match="must have 1 outputs, got 2"):
        model(Points({"s": S[CTX], "t": T[CTX]}, S[CTX]), points(TGT))
    with pytest.raises(ValueError, match="one task with axes"):
        model(Points({"s": S[None, CTX], "t": T[None, CTX]}, F[None, CTX]), points(TGT))


def test_b9_the_callers_order_and_arrays(model):
    order, expected = np.array([2, 0, 1]), answer(model)
    tgt = Points({"s": S[TGT][order], "t": T[TGT][order]})
    got = predict(model, points(CTX, f=F), tgt)
    assert close(got, jax.tree.map(lambda leaf: leaf[order], expected), atol=1e-5)
    np.testing.assert_array_equal(tgt.index["s"], S[TGT][order])
    np.testing.assert_array_equal(tgt.index["t"], T[TGT][order])


def test_c1_missing_values(model):
    """In the context: a row less, by NaN and by a NumPy masked array. In a target: it does not count."""
    gone = np.arange(8)[:, None] == 2
    dropped = predict(model, points(CTX, f=F).take(np.array([0, 1, 3, 4])).pad(N_CTX), points(TGT))
    for f in (np.where(gone, np.nan, F), np.ma.array(F, mask=gone)):
        assert Points({"s": S}, f).n_missing == 1
        assert close(answer(model, f=f), dropped)
    assert not close(answer(model), dropped, atol=1e-4)
    targets = F[TGT].copy()
    targets[1] = np.nan
    loss, grads = losses(model, pair(tgt_f=(targets, F[TGT])))
    log_prob = np.asarray(answer(model).log_prob(jnp.asarray(F[TGT], float)))[:, 0]
    assert finite((loss, grads))
    np.testing.assert_allclose(loss[0], -log_prob[[0, 2]].mean(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="Component 't' must be finite .* got 1 NaN"):
        answer(model, t=np.where(gone, np.nan, T))


@pytest.mark.parametrize("name", {type(row.model): name for name, row in TABLE.items()}.values())
def test_c1_one_of_two_outputs_missing_drops_the_row(name):
    """The row is no context for the other output either; targets are masked output by output, see the metrics."""
    model = perturbed(TABLE[name].make(head=GaussianHead(2)), key=jax.random.key(1))
    f = np.concatenate([F, F[::-1]], 1)
    hidden = f.copy()
    hidden[1, 0] = np.nan
    dropped = predict(model, points(CTX, f=f).take(np.array([0, 2, 3, 4])).pad(N_CTX), points(TGT))
    assert close(answer(model, f=hidden), dropped)
    assert points(CTX, f=hidden).n_missing == 1


@pytest.mark.parametrize("what", ["values", "time", "place", "everything", "one observation"])
def test_c4_constants(model, what):
    same = lambda x, names: np.full_like(x, 1.25) if what in names else x  # noqa: E731
    s, t, f = same(S, ("place", "everything")), same(T, ("time", "everything")), same(F, ("values", "everything"))
    mask = np.broadcast_to(np.arange(N_CTX) < (1 if what == "one observation" else N_CTX), (2, N_CTX))
    loss, grads = losses(model, pair(s=(s, s), t=(t, t), f=(f, f), mask=mask))
    assert finite((loss, grads))


@given(
    size=st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1e4, 1e9, 1e15]),
    where=st.sampled_from([0.0, 1e-6, 1.0, 4.0]),
    when=st.sampled_from([0.0, 1e-20, 1.0, 1e6, 1e12]),
    rows=st.integers(0, N_CTX),
)
def test_c12_the_variance_is_positive(model, size, where, when, rows):
    got = answer(model, s=S * where, t=T * when, f=F * size, mask=np.arange(N_CTX) < rows)
    assert finite(got) and (np.asarray(got.variance) > 0).all()


def test_c12_numbers_whose_squares_overflow_are_refused(model, x64):
    """Norms and dot products would be infinite, the prediction NaN."""
    far = 1e200 if x64 else 1e20
    with pytest.raises(ValueError, match=r"`f` must be at most .* in size for its squares to fit float.*, got .*e\+"):
        answer(model, f=F * far)
    for name, options in (("s", {"s": S * far}), ("t", {"t": T * far})):
        with pytest.raises(ValueError, match=f"Component '{name}' must be at most .* in size for its squares"):
            answer(model, **options)
    assert finite(answer(model, f=F / np.abs(F).max() * (1e150 if x64 else 9e17)))


def test_d1_a_file_of_another_width_and_half_a_file(model, tmp_path):
    checkpoint.save(tmp_path / "model", model)
    narrow = jax.tree.map(lambda x: jnp.asarray(_half(x)) if eqx.is_inexact_array(x) else x, model)
    with pytest.raises(CheckpointError, match=r"`.*` is float.* \(.*\) in the file, but float.* \(.*\) here"):
        checkpoint.load(tmp_path / "model", like=narrow)
    for back in (checkpoint.load(tmp_path / "model"), checkpoint.load(tmp_path / "model", like=model)):
        assert [a.tobytes() for a in _host(back)] == [a.tobytes() for a in _host(model)]
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="damaged or not a file of bsatnp"):
        checkpoint.load(tmp_path / "model")


def _half(leaf):
    """The first half of every axis."""
    return np.asarray(leaf)[tuple(slice(0, -(-n // 2)) for n in leaf.shape)]
