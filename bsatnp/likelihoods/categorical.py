"""The categorical likelihood of labels, and its head."""

from typing import ClassVar, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Num

from bsatnp._types import Array, Key, whole
from bsatnp.likelihoods.base import (
    AbstractHead,
    AbstractLikelihood,
    check_raw,
    concrete_values,
    on_device,
    wide_on_device,
)


class Categorical(AbstractLikelihood):
    """One label per target, 0 … class − 1, without order: means, quantiles and CRPS raise NotImplementedError.

    **Shapes.** `logits` is `(…, tgt, 1, class)`, labels are `(…, tgt, 1)`, integers in any numeric type.

    **Invariant under** a number added to all logits of a target.

    Raises:
        ValueError: `logits` without an output axis of width 1.
    """

    logits: Float[Array, "*batch tgt 1 class"]
    scores: ClassVar[tuple[str, ...]] = ("nll", "accuracy")

    def __check_init__(self):
        shape = jnp.shape(self.logits)
        if len(shape) < 3 or shape[-2] != 1:
            raise ValueError(f"`logits` must have axes (…, tgt, 1, class), got {shape}.")

    @property
    def probs(self) -> Float[Array, "*batch tgt 1 class"]:
        """The probability of every label."""
        return jax.nn.softmax(wide_on_device(self.logits), axis=-1)

    @property
    def mode(self) -> Int[Array, "*batch tgt 1"]:
        """The most probable label, the first of equals."""
        return jnp.argmax(jnp.asarray(self.logits), axis=-1)

    def log_prob(self, f: Num[Array, "*batch tgt 1"]) -> Float[Array, "*batch tgt 1"]:
        """The log probability of the labels `f`; −inf for what is no label."""
        logits = wide_on_device(self.logits)
        label, valid = _labels(f, logits)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), label[..., None], axis=-1)[..., 0]
        return jnp.where(valid, picked, -jnp.inf)

    def sample(self, *, key: Key) -> Int[Array, "*batch tgt 1"]:
        """One label for every target."""
        return jax.random.categorical(key, wide_on_device(self.logits), axis=-1)

    @property
    def mean(self) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("mean")

    @property
    def variance(self) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("variance")

    @property
    def std(self) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("std")

    def cdf(self, f: Num[Array, "*batch tgt 1"]) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("cdf")

    def quantile(self, p: float) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("quantile")

    def covers(self, f: Num[Array, "*batch tgt 1"], level: float) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("covers")

    def crps(self, f: Num[Array, "*batch tgt 1"]) -> NoReturn:
        """Not defined: raises NotImplementedError."""
        raise _unordered("crps")


class CategoricalHead(AbstractHead):
    """One logit per class in, a `Categorical` out; labels go into a network as one-hot vectors.

    Raises:
        ValueError: `classes` below 2.
    """

    fixed: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    classes: int = eqx.field(static=True)
    out: int = eqx.field(static=True, default=1, init=False)

    def __check_init__(self):
        whole("classes", self.classes, 2)

    @property
    def raw(self) -> int:
        """Network outputs per target."""
        return self.classes

    @property
    def features(self) -> int:
        """Numbers per point that `encode` gives."""
        return self.classes

    def encode(self, f: Num[Array, "*batch point 1"]) -> Float[Array, "*batch point {self.features}"]:
        """Labels as one-hot vectors."""
        label = on_device(f)[..., 0].astype(jnp.int32)
        return jax.nn.one_hot(label, self.classes, dtype=jnp.float32)

    def __call__(self, raw: Float[Array, "*batch tgt {self.raw}"]) -> Categorical:
        """Take `raw` as logits."""
        check_raw(raw, self.raw)
        return Categorical(wide_on_device(raw)[..., None, :])

    def check(self, f: Array) -> None:
        """Raise ValueError for what is no label, or more than one output."""
        values = concrete_values(f, self.out)
        if values is None:
            return
        wrong = values[(values != np.floor(values)) | (values < 0) | (values >= self.classes)]
        if len(wrong):
            raise ValueError(f"`f` must hold labels from 0 to {self.classes - 1}, got {wrong[0]:g}.")


def _labels(f: Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Labels that can index, and whether each was one to begin with."""
    f = on_device(f)
    if f.shape != logits.shape[:-1]:
        raise ValueError(f"`f` must have axes (…, tgt, 1) = {logits.shape[:-1]}, got {f.shape}.")
    label = f.astype(jnp.int32)
    valid = (label.astype(f.dtype) == f) & (label >= 0) & (label < logits.shape[-1])
    return jnp.where(valid, label, jnp.zeros_like(label)), valid


def _unordered(name: str) -> NotImplementedError:
    return NotImplementedError(f"`{name}` needs values that have an order, but the labels of a Categorical have none.")
