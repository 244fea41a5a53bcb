"""Forecasts of a spatiotemporal Gaussian process that is only partly stationary: a nonseparable kernel and a mean."""

import dataclasses
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, Key, floating, namespace, real, whole, whole_range
from bsatnp.simulate.draws import cells, correlate, shuffles
from bsatnp.simulate.kernels import AbstractKernel, is_known, parameter, positive
from bsatnp.tasks import Points, Task


class Gneiting(AbstractKernel):
    """σ² g(u)^(−ν) exp(−(‖Δs / ℓ‖² / g(u)^b)^γ) with u = |Δt| and g(u) = 1 + a u^(2α).

    **Shapes.** A point is (x, y, t), `(3,)`.

    **Units.** `lengthscale` in those of space, `variance` in squared units of the values.

    **Invariant under.** Translations of space and time, time reversal; rotations only if both lengthscales agree.

    Args:
        variance: σ², `()`.
        lengthscale: (ℓ_x, ℓ_y), `(2,)`.
        a: strength of the decay in time, `()`.
        alpha: its smoothness, in (0, 1].
        b: interaction of space and time, in [0, 1].
        nu: exponent of the decay in time, at least `b`.
        gamma: smoothness in space, in (0, 1].

    Raises:
        ValueError: a parameter that is not positive, or beyond the range where this is a covariance.

    **Reference.** The paper's experimental setup, Gneiting Gaussian process.
    """

    variance: Any
    lengthscale: Any
    a: Any
    alpha: Any
    b: Any
    nu: Any
    gamma: Any

    def __check_init__(self):
        positive(variance=self.variance, lengthscale=self.lengthscale, a=self.a)
        positive(alpha=self.alpha, nu=self.nu, gamma=self.gamma)
        for name, low, high in (("alpha", 0, 1), ("b", 0, 1), ("gamma", 0, 1), ("nu", self.b, np.inf)):
            value = getattr(self, name)
            if (
                is_known(value)
                and is_known(low)
                and not ((low <= np.asarray(value)) & (np.asarray(value) <= high)).all()
            ):
                raise ValueError(f"`{name}` must be at least {low} and at most {high}, got {value}.")

    def __call__(self, p: Array, q: Array) -> Any:
        """The covariance of the values at `p` and at `q`."""
        p, q = floating(p), floating(q)
        u = (p[..., :2] - q[..., :2]) / parameter(self.lengthscale, p)
        return self._at((u * u).sum(-1), *self._decay(abs(p[..., 2] - q[..., 2])))

    def _decay(self, lag: Any) -> tuple[Any, Any]:
        """What a lag in time makes of the variance, and by how much it stretches squared distances."""
        variance, a, alpha, b, nu = (parameter(x, lag) for x in (self.variance, self.a, self.alpha, self.b, self.nu))
        g = 1 + a * _power(lag, 2 * alpha)
        return variance * g**-nu, g**b

    def _at(self, square: Any, variance: Any, stretch: Any) -> Any:
        """The covariance from the squared scaled distance in space and what `_decay` gives."""
        xp = namespace(square)
        return variance * xp.exp(-_power(square / stretch, parameter(self.gamma, square)))

    def gram(self, s: Array, frame: Array, *, frames: int, interval: float) -> Array:
        """The covariance of points at evenly spaced times, with powers of lags taken per frame and not per pair.

        **Shapes.** Locations `(point, 2)` and numbers of frames `(point,)` to `(point, point)`.

        Args:
            s: locations.
            frame: number of the frame of each point, 0 to `frames` − 1.
            frames: how many frames there are.
            interval: time between frames.
        """
        scaled = (s / jnp.asarray(self.lengthscale)[None]).T
        square = jnp.square(scaled[:, :, None] - scaled[:, None, :]).sum(0)
        lag = jnp.abs(frame[:, None] - frame[None])
        return self._at(square, *(values[lag] for values in self._decay(interval * jnp.arange(frames, dtype=s.dtype))))


class GneitingMean(eqx.Module):
    """The mean of one task, 6 + 0.9 m(s, t), with weights on functions that all tasks share.

    m = bias + terrain T(s) + sine sin 2πt + cosine cos 2πt + harmonic sin(4πt − 0.45π) + interaction T(s) sin 2πt
    + trend (t − ½) + hotspot H(s, t). What the paper leaves open here and in `terrain` and `hotspot` is as in its
    authors' published script; so is the time at which the hotspot is at (−0.55, −0.25): ½, where the paper says that it
    begins there.

    **Shapes.** Points (x, y, t), `(…, 3)` to `(…)`; every weight is `()`.

    **Reference.** The paper's experimental setup, Gneiting Gaussian process.
    """

    bias: Any
    terrain: Any
    sine: Any
    cosine: Any
    harmonic: Any
    interaction: Any
    trend: Any
    hotspot: Any

    def __call__(self, points: Array) -> Array:
        """The mean at `points`."""
        xp, points = namespace(points), floating(points)
        names = [field.name for field in dataclasses.fields(self)]
        weight = {name: parameter(getattr(self, name), points) for name in names}
        height, t = terrain(points[..., :2]), points[..., 2]
        clock = xp.sin(2 * np.pi * t)
        m = (
            weight["bias"]
            + weight["terrain"] * height
            + weight["sine"] * clock
            + weight["cosine"] * xp.cos(2 * np.pi * t)
            + weight["harmonic"] * xp.sin(np.pi * (4 * t - 0.45))
            + weight["interaction"] * height * clock
            + weight["trend"] * (t - 0.5)
            + weight["hotspot"] * hotspot(points)
        )
        return 6.0 + _SCALE * m


#: All values but the offset of the mean are scaled by this: the mean's weights, the process and the noise.
_SCALE = 0.9

#: Ranges of the kernel's parameters, log-uniform and uniform, and of the mean's weights.
_SCALES = {"variance": (0.85, 1.75), "length_x": (0.05, 0.15), "length_y": (0.05, 0.15), "a": (0.25, 2.5)}
_SHAPES = {"alpha": (0.35, 1.0), "b": (0.0, 0.75), "nu": (1.1, 4.0), "gamma": (0.55, 1.0)}
_WEIGHTS = {
    "bias": (-0.15, 0.15),
    "terrain": (-0.75, 0.75),
    "sine": (-0.55, 0.55),
    "cosine": (-0.55, 0.55),
    "harmonic": (-0.25, 0.25),
    "interaction": (-0.35, 0.35),
    "trend": (-0.10, 0.10),
    "hotspot": (-0.55, 0.55),
}

#: Centre, widths and height of the terrain's three bumps.
_BUMPS = (((-0.72, -0.18), (0.3, 0.42), 1.3), ((-0.08, 0.58), (0.26, 0.24), -1.05), ((0.56, -0.48), (0.38, 0.5), 0.85))


def terrain(s: Array) -> Array:
    """Three Gaussian bumps and a ripple, with mean 0 and variance 1 over the domain: `(…, 2)` to `(…)`."""
    middle, spread = _level()
    return (_height(s) - middle) / spread


def _height(s: Array) -> Any:
    xp = namespace(s)
    x, y = s[..., 0], s[..., 1]
    height = 0.35 * xp.sin(np.pi * (x + 0.35)) * xp.cos(np.pi * (0.8 * y - 0.175))
    for centre, width, top in _BUMPS:
        height = height + top * _bump(x - centre[0], y - centre[1], width)
    return height


@cache
def _level() -> tuple[float, float]:
    """Mean and standard deviation of the bumps and the ripple over the domain."""
    height = _height(cells(100, (-1.0, 1.0), 2))
    return float(height.mean()), float(height.std())


def hotspot(points: Array) -> Array:
    """A bump that is at (−0.55, −0.25) at time ½ and moves with velocity (1.05, 0.55): `(…, 3)` to `(…)`."""
    x, y, t = points[..., 0], points[..., 1], points[..., 2]
    return _bump(x + 0.55 - 1.05 * (t - 0.5), y + 0.25 - 0.55 * (t - 0.5), (0.24, 0.18))


def _bump(x: Any, y: Any, width: tuple[float, float]) -> Any:
    return namespace(x).exp(-((x / width[0]) ** 2 + (y / width[1]) ** 2) / 2)


class GneitingProcess(eqx.Module):
    """What stands behind a task: its kernel, mean and noise (standard deviation), as `posterior` takes them."""

    kernel: Gneiting
    mean: GneitingMean
    noise: Any


@dataclasses.dataclass(frozen=True)
class GneitingTasks:
    """A stream of forecasts: sparse observations at four times, all locations at a fifth.

    `tasks(step, key=key)` is a batch; `draw` gives the processes behind it as well. The components are `"s"`, two wide,
    and `"t"`, one wide. The context comes first in its rows, padding last.

    The paper gives the ranges of variance and noise before everything is scaled by 0.9, as its authors' script does: on
    unscaled values not even the exact posterior reaches the scores of the paper.

    **Units.** Space on [−1, 1]², the `times` evenly on [0, 1].

    **Invariant under.** Nothing: the kernel is stationary, the mean is not.

    Args:
        batch: tasks in a batch.
        n_ctx: the number of context locations is drawn uniformly from [low, high), for each context time.
        locations: drawn uniformly for each task.
        times: evenly spaced on [0, 1].
        window: consecutive times of a task; the last is the target.
        noise: range of the log-uniform standard deviation of the noise, before all values are scaled.
        noisy_tgt: whether targets are noisy as well; the paper says that noise "perturbs the targets".

    Raises:
        ValueError: numbers that do not fit each other.

    **Reference.** The paper's experimental setup, Gneiting Gaussian process.
    """

    batch: int = 4
    n_ctx: tuple[int, int] = (8, 16)
    locations: int = 256
    times: int = 12
    window: int = 5
    noise: tuple[float, float] = (0.01, 0.06)
    noisy_tgt: bool = True

    def __post_init__(self):
        for name, least in (("batch", 1), ("locations", 1), ("times", 2), ("window", 2)):
            whole(name, getattr(self, name), least)
        whole_range("n_ctx", self.n_ctx, self.locations + 1)
        if self.window > self.times:
            raise ValueError(f"`window` must be between 2 and the {self.times} times, got {self.window}.")
        if real("noise", self.noise[0]) > real("noise", self.noise[1]):
            raise ValueError(f"`noise` must be (low, high) with 0 < low <= high, got {self.noise}.")

    def __call__(self, step: int, *, key: Key) -> Task:
        """Batch number `step` of the stream that `key` chooses."""
        return self.draw(step, key=key)[0]

    def draw(self, step: int, *, key: Key) -> tuple[Task, GneitingProcess]:
        """A batch, and the processes behind it with a batch axis."""
        shape = (self.batch, self.n_ctx, self.locations, self.times, self.window)
        return _draw(shape, self.noise, float(self.noisy_tgt), key=jax.random.fold_in(key, step))


@partial(jax.jit, static_argnums=0)
def _draw(shape, noise, noisy_tgt, *, key):
    batch, (low, high), locations, n_times, window = shape
    key_process, key_place, key_time, key_count, key_rows, key_field, key_noise = jax.random.split(key, 7)
    frames = window - 1
    process = _process(batch, noise, key=key_process)
    place = jax.random.uniform(key_place, (batch, locations, 2), minval=-1, maxval=1)
    start = jax.random.randint(key_time, (batch, 1), 0, n_times - frames)
    times = (start + jnp.arange(window)[None]).astype(place.dtype) * (1 / (n_times - 1))

    counts = jax.random.randint(key_count, (batch, frames, 1), low, high)
    rows = shuffles(locations, (batch, frames), key=key_rows)[..., : high - 1].reshape(batch, -1)
    mask = (jnp.arange(high - 1)[None, None] < counts).reshape(batch, -1)
    order = jnp.argsort(~mask, axis=-1, stable=True)  # padding last
    mask, rows = jnp.take_along_axis(mask, order, 1), jnp.take_along_axis(rows, order, 1)
    s_ctx = jnp.take_along_axis(place, rows[..., None], 1)
    frame = order // (high - 1)
    t_ctx = jnp.take_along_axis(times, frame, 1)[..., None]
    t_tgt = jnp.broadcast_to(times[:, None, -1:], (batch, locations, 1))

    s, t = jnp.concatenate([s_ctx, place], 1), jnp.concatenate([t_ctx, t_tgt], 1)
    frame = jnp.concatenate([frame, jnp.full((batch, locations), frames)], 1)
    white = jax.random.normal(key_field, s.shape[:2], s.dtype)

    def field(process, s, t, frame, white):
        covariance = process.kernel.gram(s, frame, frames=window, interval=1 / (n_times - 1))
        return process.mean(jnp.concatenate([s, t], -1)) + correlate(covariance, white)

    latent = jax.vmap(field)(process, s, t, frame, white)
    noise = process.noise[:, None] * jax.random.normal(key_noise, latent.shape, latent.dtype)
    n = mask.shape[1]
    f_ctx = jnp.where(mask, (latent + noise)[:, :n], jnp.zeros_like(latent[:, :n]))
    f_tgt = (latent + noisy_tgt * noise)[:, n:]
    ctx = Points({"s": s_ctx, "t": t_ctx}, f_ctx[..., None], mask=mask)
    return Task(ctx, Points({"s": place, "t": t_tgt}, f_tgt[..., None])), process


def _process(batch, noise, *, key):
    ranges = {**_SCALES, "noise": noise, **_SHAPES, **_WEIGHTS}
    low, high = (
        jnp.stack([jnp.asarray(x, float) for x in ends])[:, None] for ends in zip(*ranges.values(), strict=True)
    )
    unit = jax.random.uniform(key, (len(ranges), batch))
    n = len(_SCALES) + 1  # these are log-uniform
    scales = low[:n] * (high[:n] / low[:n]) ** unit[:n]
    others = low[n:] + (high[n:] - low[n:]) * unit[n:]
    value = dict(zip(ranges, jnp.concatenate([scales, others]), strict=True))
    lengthscale = jnp.stack([value["length_x"], value["length_y"]], -1)
    kernel = Gneiting(_SCALE**2 * value["variance"], lengthscale, value["a"], **{name: value[name] for name in _SHAPES})
    return GneitingProcess(kernel, GneitingMean(**{name: value[name] for name in _WEIGHTS}), _SCALE * value["noise"])


def _power(x: Any, exponent: Any) -> Any:
    """Power `x ** exponent` for x ≥ 0, with a zero gradient at zero."""
    xp = namespace(x)
    return xp.where(x > 0, xp.where(x > 0, x, 1) ** exponent, 0)
