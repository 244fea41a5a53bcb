"""Networks applied point by point, and the tokens of a task."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import Index, Key, whole


def linears(shapes: Sequence[tuple[int, int]], *, key: Key) -> tuple[eqx.nn.Linear, ...]:
    """Linear layers (n_in, n_out) with normal weights of variance 1 / n_in and zero biases.

    All weights come from one draw: each shape that is drawn costs a compilation.
    """
    sizes = [n_in * n_out for n_in, n_out in shapes]
    numbers = jnp.split(jax.random.normal(key, (sum(sizes),)), list(accumulate(sizes))[:-1])
    layers = []
    for (n_in, n_out), draw in zip(shapes, numbers, strict=True):
        layer = eqx.nn.Linear(n_in, n_out, key=key)
        weight = draw.reshape(n_out, n_in) / math.sqrt(n_in)
        layers.append(eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros(n_out, weight.dtype))))
    return tuple(layers)


class MLP(eqx.Module):
    """Linear layers with an activation between them, none after the last.

    **Shapes.** `(point, n_in)` to `(point, sizes[-1])`.

    Args:
        n_in: width of the input.
        sizes: widths of the layers.
        activation: between the layers.
        key: draws the weights.

    Raises:
        ValueError: no layer, or a width below 1.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(self, n_in: int, sizes: Sequence[int], *, activation: Callable = jax.nn.gelu, key: Key):
        if not isinstance(sizes, Sequence) or not sizes:
            raise ValueError(f"`sizes` must be the widths of one layer or more, got {sizes!r}.")
        widths = (whole("n_in", n_in), *(whole("sizes", size) for size in sizes))
        self.layers = linears(list(pairwise(widths)), key=key)
        self.activation = activation

    @property
    def n_in(self) -> int:
        """Width of the input."""
        return int(self.layers[0].in_features)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.layers[-1].out_features)

    def __call__(self, x: Float[Array, "point n_in"]) -> Float[Array, "point n_out"]:
        """Apply to every point."""
        for layer in self.layers[:-1]:
            x = self.activation(jax.vmap(layer)(x))
        return jax.vmap(self.layers[-1])(x)


class Identity(eqx.Module):
    """An embedding that passes a component on as it is.

    Args:
        n_in: width of the component.

    Raises:
        ValueError: a width below 1.
    """

    n_in: int = eqx.field(static=True)

    def __check_init__(self):
        whole("n_in", self.n_in)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return self.n_in

    def __call__(self, x: Float[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Return `x`."""
        return x


class LayerNorm(eqx.Module):
    """Layer normalisation of every point, with the epsilon of the reference models."""

    norm: eqx.nn.LayerNorm

    def __init__(self, dim: int):
        self.norm = eqx.nn.LayerNorm(dim, eps=1e-6)

    def __call__(self, x: Float[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Normalise every point."""
        return jax.vmap(self.norm)(x)


def check_embeddings(embed: Mapping[str, Any]) -> None:
    """Raise ValueError for an embedding without `n_in` and `n_out`, or of other widths than these say."""
    for name, part in embed.items():
        must = (
            f"`embed[{name!r}]` must be a module (point, n_in) → (point, n_out) with attributes n_in and n_out, such "
            "as `MLP` of `bsatnp.layers`, got"
        )
        widths = [getattr(part, width, None) for width in ("n_in", "n_out")]
        if not all(isinstance(width, Integral) for width in widths):
            raise ValueError(f"{must} {getattr(part, '__name__', type(part).__name__)} without these.")
        n_in, n_out = widths
        try:
            found = eqx.filter_eval_shape(part, jax.ShapeDtypeStruct((2, n_in), jnp.result_type(float)))
        except Exception as error:
            raise ValueError(f"{must} {type(part).__name__}, which does not take (2, {n_in}).") from error
        if (shape := getattr(found, "shape", None)) != (2, n_out):
            raise ValueError(
                f"{must} {type(part).__name__}, which makes {shape} of (2, {n_in}) where n_out is {n_out}."
            )


class TokenEmbedding(eqx.Module):
    """Tokens from an observed flag, embedded components of the index set, and values.

    A component without an embedding does not reach the tokens at all: that is how a model stays invariant.

    **Shapes.** Tokens are `(point, dim)`.

    Args:
        embed: for each component to embed, a module `(point, n_in)` → `(point, n_out)` with attributes `n_in` and
            `n_out`; their order is the order of the joint input.
        features: numbers per point that the likelihood makes of its values.
        flag: width of the learned embedding of the observed flag; 0 for the flag itself, as a number 0 or 1; None for
            tokens that do not say whether they are observed.
        sizes: widths of the joint network.
        activation: of the joint network.
        key: draws the weights.

    Raises:
        ValueError: a flag below 0, an embedding that is none; see `MLP`.

    **Reference.** Section 4.1 of the paper.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[Any, ...]
    flag: Float[Array, "2 flag"] | None
    joint: MLP
    flagged: bool = eqx.field(static=True)

    def __init__(
        self,
        embed: Mapping[str, Any],
        features: int,
        *,
        flag: int | None = 4,
        sizes: Sequence[int] = (256, 128, 64),
        activation: Callable = jax.nn.gelu,
        key: Key,
    ):
        if flag is not None:
            whole("flag", flag, 0)
        check_embeddings(embed)
        flag_key, joint_key = jax.random.split(key)
        self.names = tuple(embed)
        self.parts = tuple(embed.values())
        self.flag = jax.random.normal(flag_key, (2, flag)) / math.sqrt(flag) if flag else None
        self.flagged = flag is not None
        width = (0 if flag is None else flag or 1) + sum(part.n_out for part in self.parts) + features
        self.joint = MLP(width, sizes, activation=activation, key=joint_key)

    @property
    def features(self) -> int:
        """Numbers per point that are made of values."""
        flag = 0 if not self.flagged else 1 if self.flag is None else self.flag.shape[-1]
        return self.joint.n_in - flag - sum(part.n_out for part in self.parts)

    def __call__(self, index: Index, f: Float[Array, "point features"], *, observed: bool) -> Float[Array, "point dim"]:
        """Tokens of points that are all observed, or all not."""
        kind = self.joint.layers[0].weight.dtype
        flag = jnp.asarray([observed], kind) if self.flag is None else self.flag[int(observed)]
        flags = [jnp.tile(flag[None], (f.shape[0], 1))] if self.flagged else []
        parts = [part(index[name].astype(kind)) for name, part in zip(self.names, self.parts, strict=True)]
        return self.joint(jnp.concatenate([*flags, *parts, f.astype(kind)], -1))
