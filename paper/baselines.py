"""Gaussian processes fitted to one task at a time, by other libraries: tinygp for exact ones, GPJax for sparse ones.

They need the extra `paper`. Everything here runs in float64.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from bsatnp.tasks import Points

#: Scales at which fitted kernels start, in the units of the inputs.
START = 0.5


class Forecast(NamedTuple):
    """Mean and standard deviation at each target `(tgt,)`, and the seconds that fitting and predicting took."""

    mean: np.ndarray
    std: np.ndarray
    fit_seconds: float
    predict_seconds: float


@dataclasses.dataclass(frozen=True)
class Sparse:
    """The paper's sparse variational process: inducing points, steps of Adam, their rate; and scales of the start.

    Of three rates and three scales, these are the best of `baseline era5-cnw --method svgp --preset lite --tune`.
    """

    inducing: int = 64
    steps: int = 500
    learning_rate: float = 1e-3
    length: float = START


def inputs(points: Points) -> np.ndarray:
    """Fixed effects, space and time side by side in float64, `(point, dim)`."""
    names = [name for name in ("x", "s", "t") if name in points.index]
    return np.concatenate([np.asarray(points.index[name], np.float64) for name in names], -1)


def observed(ctx: Points) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and values of the context without its padding."""
    rows = np.asarray(ctx.usable)
    return inputs(ctx)[rows], np.asarray(ctx.f, np.float64)[rows, 0]


def known(
    kernel: Callable, ctx: Points, tgt: Points, *, noise: float, mean: Callable | None = None, tgt_noise: float = 0.0
) -> Forecast:
    """The exact posterior by tinygp, given the kernel of one pair of points, the mean and the noise."""
    import tinygp

    with jax.enable_x64(new_val=True):
        kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), kernel)
        x, y = map(jnp.asarray, observed(ctx))

        def condition(x, y, where):
            process = tinygp.GaussianProcess(_pairwise()(kernel), x, diag=jnp.asarray(noise**2 + 1e-12), mean=mean)
            found = process.condition(y, where).gp
            return found.loc, found.variance + tgt_noise**2

        start = time.perf_counter()
        loc, variance = jax.device_get(jax.jit(condition)(x, y, jnp.asarray(inputs(tgt))))
    return Forecast(loc, np.sqrt(variance), 0.0, time.perf_counter() - start)


@functools.cache
def _pairwise() -> Any:
    """A kernel of tinygp made from a function of two points, whose numbers may be arrays."""
    import tinygp

    class Pairwise(tinygp.kernels.Kernel):
        function: Any

        def evaluate(self, X1: Any, X2: Any) -> Any:  # noqa: N803
            return self.function(X1, X2)

    return Pairwise


def fitted(ctx: Points, tgt: Points, *, noisy: bool, steps: int = 200, learning_rate: float = 0.05) -> Forecast:
    """The exact posterior by tinygp under a squared exponential kernel fitted to the context by its likelihood.

    The kernel has a variance and a scale for each input. There is noise in the context, and in the targets if `noisy`.
    """
    with jax.enable_x64(new_val=True):
        x, y = map(jnp.asarray, observed(ctx))
        start = time.perf_counter()
        y, size, shift = _standardised(y)
        first = {
            "scale": jnp.full(x.shape[1], np.log(START)),
            "amplitude": jnp.asarray(0.0),
            "noise": jnp.asarray(np.log(0.1)),
        }
        best = _climb(first, x, y, steps, learning_rate)
        jax.block_until_ready(best)
        middle = time.perf_counter()
        loc, variance = jax.device_get(_posterior(best, x, y, jnp.asarray(inputs(tgt))))
        variance = variance + float(jnp.exp(2 * best["noise"])) * noisy
    return Forecast(loc * size + shift, np.sqrt(variance) * size, middle - start, time.perf_counter() - middle)


def _process(parameters, x):
    import tinygp

    scale = jnp.exp(parameters["scale"])[None]
    kernel = jnp.exp(2 * parameters["amplitude"]) * tinygp.kernels.ExpSquared()
    return tinygp.GaussianProcess(kernel, x / scale, diag=jnp.exp(2 * parameters["noise"]) + 1e-6)


@jax.jit
def _posterior(parameters, x, y, where):
    found = _process(parameters, x).condition(y, where / jnp.exp(parameters["scale"])[None]).gp
    return found.loc, jnp.maximum(found.variance, 1e-6)


def _climb(first, x, y, steps, learning_rate):
    optimiser = optax.adam(learning_rate)

    @jax.jit
    def run(first, x, y):
        def step(state, _):
            now, inner = state
            slope = jax.grad(lambda p: -_process(p, x).log_probability(y) / y.shape[0])(now)
            change, inner = optimiser.update(slope, inner)
            return (optax.apply_updates(now, change), inner), None

        return jax.lax.scan(step, (first, optimiser.init(first)), None, length=steps)[0][0]

    return run(first, x, y)


def sparse(ctx: Points, tgt: Points, *, noisy: bool, key: Any, settings: Sparse = Sparse()) -> Forecast:  # noqa: B008
    """A sparse variational process by GPJax: a squared exponential kernel with a scale for each input.

    With fixed effects it is the sum of one over all inputs but the last fixed effect, which is the hour of the day, and
    one over that alone, as the paper's "weather kernel" is described. Values are standardised, the variational family
    is whitened, and inducing points start on context points. There is noise in the context, and in the targets if
    `noisy`.
    """
    import gpjax

    with jax.enable_x64(new_val=True):
        x, y = map(jnp.asarray, observed(ctx))
        start = time.perf_counter()
        y, size, shift = _standardised(y)
        width, hour = x.shape[1], (ctx.index["x"].shape[-1] - 1 if "x" in ctx.index else None)
        axes = [axis for axis in range(width) if axis != hour]
        kernel: Any = _kernel(axes, settings.length)
        if hour is not None:
            kernel = kernel + _kernel([hour], settings.length)
        data = gpjax.Dataset(X=x, y=y[:, None])
        prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Constant(), kernel=kernel)
        model = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.asarray(0.1))
        key_choice, key_fit = jax.random.split(key)
        rows = jax.random.choice(key_choice, len(x), (min(settings.inducing, len(x)),), replace=False)
        whitened: Any = gpjax.variational_families.WhitenedVariationalGaussian
        family = whitened(model=model, inducing_inputs=x[rows])
        family, _ = gpjax.fit(
            model=family,
            objective=_minus_elbo,
            train_data=data,
            optim=optax.adam(settings.learning_rate),
            num_iters=settings.steps,
            key=key_fit,
            verbose=False,
        )
        jax.block_until_ready(jax.tree.leaves(family))
        middle = time.perf_counter()
        loc, std = jax.device_get(_sparse_posterior(family, jnp.asarray(inputs(tgt)), noisy))
    return Forecast(loc * size + shift, std * size, middle - start, time.perf_counter() - middle)


def _kernel(axes: list[int], length: float) -> Any:
    """A squared exponential kernel over some inputs, with a scale for each."""
    import gpjax

    scales: Any = jnp.full(len(axes), length)
    return gpjax.kernels.RBF(active_dims=axes, lengthscale=scales)


def _minus_elbo(family: Any, data: Any) -> Any:
    import gpjax

    return -gpjax.objectives.elbo(family, data)


@eqx.filter_jit
def _sparse_posterior(family, where, noisy):
    latent = family.predict(where)
    found = family.model.likelihood(latent) if noisy else latent
    return found.mean, jnp.sqrt(found.variance)


def _standardised(values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Values of mean 0 and deviation 1, or of one value all 0; the deviation and the mean that they had."""
    mean, spread = values.mean(), values.std()
    size = jnp.where(spread > 0, spread, 1.0)
    return (values - mean) / size, size, mean
