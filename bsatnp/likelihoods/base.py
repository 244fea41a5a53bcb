"""What every likelihood and every head promises, and the checks that they share."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Num

from bsatnp._types import Array, Key, device_integers, is_traced, widened

#: The scores in `bsatnp.metrics` that make sense for a number.
NUMERIC_SCORES = ("nll", "mae", "rmse", "coverage", "crps")


class AbstractLikelihood(eqx.Module):
    """The predictive distribution of every output at every target, independent given the context.

    **Shapes.** Parameters are `(…, tgt, out)` with any leading batch axes; so are the values `f` and every result. They
    may be NumPy or JAX arrays; the results are JAX arrays, in float32, or with x64 in the precision of the parameters.

    A likelihood of your own holds nothing but such arrays (further axes come after `out`), and accepts a 1 in any
    place of them: that is how `masked` keeps NaN away from gradients. `scores` names the functions of `bsatnp.metrics`
    that apply to it.
    """

    scores: ClassVar[tuple[str, ...]] = NUMERIC_SCORES

    if TYPE_CHECKING:  # a type checker would take the annotations below for arguments of every likelihood

        @property
        def mean(self) -> Array:
            """The predictive mean."""
            ...

        @property
        def std(self) -> Array:
            """The predictive standard deviation."""
            ...

    else:
        mean: eqx.AbstractVar[Array]
        std: eqx.AbstractVar[Array]

    @property
    @abstractmethod
    def variance(self) -> Float[Array, "*batch tgt out"]:
        """The predictive variance, always above 0. **Units.** Those of `f`, squared."""

    @abstractmethod
    def log_prob(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The log density (of numbers) or log probability (of counts and labels) of `f`; −inf outside the support."""

    @abstractmethod
    def cdf(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The probability of a value no larger than `f`."""

    @abstractmethod
    def quantile(self, p: float) -> Float[Array, "*batch tgt out"]:
        """The smallest value whose `cdf` reaches `p`.

        Raises:
            ValueError: `p` is not strictly between 0 and 1.
        """

    @abstractmethod
    def covers(self, f: Num[Array, "*batch tgt out"], level: float) -> Bool[Array, "*batch tgt out"]:
        """Whether `f` lies in the central interval of probability `level`, its ends included.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """

    @abstractmethod
    def sample(self, *, key: Key) -> Num[Array, "*batch tgt out"]:
        """One draw for every target and output."""

    @abstractmethod
    def crps(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The continuous ranked probability score of `f`, the smaller the better. **Units.** Those of `f`.

        **Reference.** Gneiting and Raftery (2007), Strictly proper scoring rules, section 4.2.
        """

    def masked(self, observed: Bool[Array, "*batch tgt out"]) -> "AbstractLikelihood":
        """The same distribution where `observed`, and parameters of 1 elsewhere, through which no gradient flows."""

        def keep(leaf):
            leaf = jnp.asarray(leaf)
            known = jnp.asarray(observed).reshape(observed.shape + (1,) * (leaf.ndim - observed.ndim))
            return jnp.where(known, leaf, jnp.ones_like(leaf))

        return jax.tree.map(keep, self)


class AbstractHead(eqx.Module):
    """The map from what a network puts out at a target to a likelihood, and from values to what a network takes in."""

    #: Outputs per point.
    out: eqx.AbstractVar[int]
    #: Values that a scaling of `f` must leave where they are: 0 where `f` cannot be negative, 0 and 1 where it counts
    #: or names something.
    fixed: ClassVar[tuple[float, ...]] = ()

    @property
    @abstractmethod
    def raw(self) -> int:
        """How many numbers per target the network must put out."""

    @property
    @abstractmethod
    def features(self) -> int:
        """How many numbers per point `encode` gives."""

    @abstractmethod
    def encode(self, f: Num[Array, "*batch point out"]) -> Float[Array, "*batch point {self.features}"]:
        """Observed values as inputs of a network."""

    @abstractmethod
    def __call__(self, raw: Float[Array, "*batch tgt {self.raw}"]) -> AbstractLikelihood:
        """The likelihood for the outputs `raw` of a network.

        Raises:
            ValueError: the last axis of `raw` is not as wide as `self.raw`.
        """

    @abstractmethod
    def check(self, f: Array) -> None:
        """Look at concrete values on the host; NaN stands for not observed, traced values pass unseen.

        Raises:
            ValueError: `f` has another number of outputs, or a value outside the support.
        """


def on_device(x: Array) -> jax.Array:
    """A device array of `x`; host integers that it cannot count become floats, bytes get the machine's order."""
    if isinstance(x, np.ndarray):
        x = device_integers(x) if x.dtype.kind in "iu" else x
        x = x.astype(x.dtype.newbyteorder("="), copy=False)
    return jnp.asarray(x)


def wide_on_device(x: Array) -> jax.Array:
    """A device array in float32 or wider, whatever the type of `x`."""
    x = on_device(x)
    return x.astype(widened(x.dtype))


def values_like(f: Array, parameter: Array) -> jax.Array:
    """The values `f` in the precision of `parameter`.

    Raises:
        ValueError: the shapes differ.
    """
    f = on_device(f)
    if f.shape != parameter.shape:
        raise ValueError(f"`f` must have axes (…, tgt, out) = {parameter.shape}, got {f.shape}.")
    return f.astype(parameter.dtype)


def minus(f: Array, mean: Array) -> jax.Array:
    """The errors f − mean in float32 or wider; of host arrays they are taken in float64.

    Raises:
        ValueError: the shapes differ.
    """
    if isinstance(f, np.ndarray) and isinstance(mean, np.ndarray) and f.shape == mean.shape:
        return on_device((f.astype(np.float64) - mean.astype(np.float64)).astype(widened(mean.dtype)))
    mean = wide_on_device(mean)
    return values_like(f, mean) - mean


def for_each(pred: AbstractLikelihood, name: str, found: Array, f: Array) -> Array:
    """Return `found`, which `name` of a likelihood gave for the values `f`.

    Raises:
        ValueError: its axes are not those of `f`, with which it might broadcast.
    """
    if jnp.shape(found) != jnp.shape(f):
        raise ValueError(
            f"`{name}` of {type(pred).__name__} must give the axes of `f` {jnp.shape(f)}, got {jnp.shape(found)}."
        )
    return found


def probability_like(p: Array | float, parameter: jax.Array) -> jax.Array:
    """The probability `p` for every number of `parameter`, in its type, where a probability close to 1 is not 1."""
    return jnp.full_like(parameter, jnp.minimum(jnp.asarray(p, parameter.dtype), 1 - jnp.finfo(parameter.dtype).epsneg))


def check_same_shape(**parameters: Array) -> None:
    """Raise ValueError unless the named parameters share one shape."""
    (first, one), (second, two) = parameters.items()
    if jnp.shape(one) != jnp.shape(two):
        raise ValueError(f"`{second}` must have the shape of `{first}` {jnp.shape(one)}, got {jnp.shape(two)}.")


def check_probability(name: str, p: float) -> None:
    """Raise ValueError unless 0 < `p` < 1."""
    if np.ndim(p) or (not is_traced(p) and not 0 < p < 1):
        raise ValueError(f"`{name}` must lie strictly between 0 and 1, got {p}.")


def check_at_least(name: str, value: float, least: float) -> None:
    """Raise ValueError unless `value` is a finite number no smaller than `least`."""
    if not least <= value < float("inf"):
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")


def check_raw(raw: Array, width: int) -> None:
    """Raise ValueError unless the last axis of `raw` has the given width."""
    if jnp.shape(raw)[-1] != width:
        raise ValueError(f"`raw` must have {width} numbers per target, got {jnp.shape(raw)[-1]}.")


def concrete_values(f: Array, out: int) -> np.ndarray | None:
    """The values of `f` that are not NaN, flat and in float64 on the host; None for traced values.

    Raises:
        ValueError: the last axis of `f` is not `out` wide.
    """
    shape = jnp.shape(f)
    if len(shape) < 2 or shape[-1] != out:
        raise ValueError(f"`f` must have axes (…, point, out) with {out} outputs, got {shape}.")
    if is_traced(f):
        return None
    values = np.asarray(f).astype(np.float64)
    return values[~np.isnan(values)]
