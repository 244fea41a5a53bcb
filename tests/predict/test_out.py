"""Results into arrays of the caller, with memory that does not grow."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
import zarr

from bsatnp.likelihoods import AbstractHead, CategoricalHead
from bsatnp.models import AbstractModel
from bsatnp.predict import predict
from bsatnp.tasks import Points


def test_d9_memory_maps_and_zarr(kernel, points, tmp_path):
    ctx, tgt = points(9), points(100, 1, values=False)
    whole = predict(kernel, ctx, tgt, chunk=16)
    s = np.memmap(tmp_path / "s", np.float64, "w+", shape=(100, 2))
    s[:] = tgt.index["s"]
    mean = np.memmap(tmp_path / "mean", whole.mean.dtype, "w+", shape=(100, 1))
    std = zarr.create_array(tmp_path / "std.zarr", shape=(100, 1), chunks=(30, 1), dtype="float64")
    variance = np.full((100, 1), np.nan)
    given = {"mean": mean, "std": std, "variance": variance}
    assert predict(kernel, ctx, {"s": s}, chunk=16, out=given) is None
    np.testing.assert_array_equal(mean, whole.mean)
    np.testing.assert_array_equal(np.asarray(std[:]), whole.std)
    np.testing.assert_allclose(variance, whole.std**2, rtol=1e-6)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((20, 1)), "`out` must map names to arrays, got ndarray"),
        ({}, "`out` must map names to arrays, got no name"),
        ({"median": np.zeros((20, 1))}, "`out` must name arrays of Gaussian, got 'median'"),
        ({"log_prob": np.zeros((20, 1))}, "`out` must name arrays of Gaussian, got 'log_prob'"),
        ({"mean": np.zeros((20, 1), int)}, r"`out\['mean'\]` must have a floating type, got int64, which would round"),
        ({"std": np.zeros((20, 1), bool)}, r"`out\['std'\]` must have a floating type, got bool"),
        ({"mean": np.zeros((20, 1), "S4")}, r"`out\['mean'\]` must have a floating type, got \|S4"),
        ({"mean": [[0.0]] * 20}, r"`out\['mean'\]` must have shape \(20, 1\), got list"),
        ({"mean": np.broadcast_to(0.0, (20, 1))}, r"`out\['mean'\]` must be writable, got a read-only array"),
        ({"mean": jnp.zeros((20, 1))}, r"`out\['mean'\]` must be an array that can be written to, got one of JAX"),
        ({"mean": np.zeros(20)}, r"`out\['mean'\]` must have shape \(20, 1\), got \(20,\)"),
    ],
)
def test_d9_out_is_checked(kernel, points, out, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        predict(kernel, points(3), points(20, values=False), out=out)


def test_d9_nothing_is_written_before_every_array_is_checked(kernel, points):
    mean = np.full((20, 1), -7.0)
    with pytest.raises(ValueError, match="must have a floating type"):
        predict(kernel, points(3), points(20, values=False), out={"mean": mean, "std": np.zeros((20, 1), int)})
    assert (mean == -7.0).all()


def test_d9_nothing_is_written_before_every_target_is_known_to_fit_into_float32(kernel, points):
    """The first chunk would do, the second has differences of 1 near 1e9, which float32 does not hold."""
    near, mean = points(32, values=False).index["s"], np.full((64, 1), -7.0)
    far = 1e9 + np.arange(64.0).reshape(32, 2)
    with pytest.raises(ValueError, match="loses differences"):
        predict(kernel, points(3), {"s": np.concatenate([near, far])}, chunk=32, out={"mean": mean})
    assert (mean == -7.0).all()


class Sum:
    """An array that keeps nothing but the sum and the number of what it is given."""

    def __init__(self, shape):
        self.shape, self.total, self.count = shape, 0.0, 0

    def __setitem__(self, rows, values):
        assert rows.start == self.count and len(values) == rows.stop - rows.start
        self.total += float(values.sum(dtype=np.float64))
        self.count += len(values)


class Grid:
    """Coordinates that are computed when they are read."""

    def __init__(self, n):
        self.shape = (n, 2)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        x = np.arange(*rows.indices(len(self)), dtype=np.float64) / len(self)
        return np.stack([4 * x - 2, np.sin(50 * x)], 1)


def test_d7_d9_a_million_targets_by_the_default_call(kernel, points, oracle):
    """Memory is flat in the number of targets, and the result is that of a direct sum."""
    ctx, peaks = points(9), []
    predict(kernel, ctx, {"s": Grid(20_000)})  # compile
    for n in (100_003, 1_000_003):
        out = {"mean": Sum((n, 1))}
        tracemalloc.start()
        predict(kernel, ctx, {"s": Grid(n)}, out=out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert out["mean"].count == n
        mean = oracle(ctx, {"s": Grid(n)[::7]})[0].mean()
        assert out["mean"].total / n == pytest.approx(mean, rel=1e-3)
    assert peaks[1] < peaks[0] + 1e6 and peaks[1] < 5e6, peaks


class Last(AbstractModel):
    """Always the last label."""

    head: AbstractHead

    @property
    def embedded(self):
        return {}

    @property
    def groups(self):
        return ()

    def condition(self, ctx):
        return lambda tgt: self.head(jnp.zeros((len(tgt), 300)).at[:, 299].set(1.0))


def test_labels_go_into_whole_numbers_that_hold_them_and_into_floats(points):
    head = CategoricalHead(300)
    ctx, tgt = points(3), points(4, values=False)
    ctx = Points(ctx.index, np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"`out\['mode'\]` must hold numbers up to 299, got uint8"):
        predict(Last(head), ctx, tgt, out={"mode": np.zeros((4, 1), np.uint8)})
    mode, real = np.zeros((4, 1), np.int16), np.zeros((4, 1))
    masked = Points(tgt.index, mask=np.array([True, False, True, True]))
    predict(Last(head), ctx, masked, out={"mode": mode, "probs": np.zeros((4, 1, 300))})
    predict(Last(head), ctx, masked, out={"mode": real})
    np.testing.assert_array_equal(mode[:, 0], [299, 0, 299, 299])
    np.testing.assert_array_equal(real[:, 0], [299, np.nan, 299, 299])
