"""Multi-head attention whose keys and values are made once."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key, whole
from bsatnp.attention import scan_attention
from bsatnp.layers.basic import linears


class MultiHeadAttention(eqx.Module):
    """Multi-head attention whose keys and values can be made once and used for many queries.

    **Shapes.** Tokens are `(point, dim)`; `width` is that of all heads together.

    Args:
        dim: width of the tokens.
        heads: number of heads.
        width: of queries, keys and values, divided among the heads.
        score: see `scan_attention`; None for plain dot products.
        key: draws the weights.

    Raises:
        ValueError: sizes below 1, heads that do not divide the width.
    """

    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    out: eqx.nn.Linear
    score: Any
    heads: int = eqx.field(static=True)

    def __init__(self, dim: int, *, heads: int, width: int, score: Any = None, key: Key):
        dim, width, heads = whole("dim", dim), whole("width", width), whole("heads", heads)
        if width % heads:
            raise ValueError(f"`heads` must divide the width of attention {width}, got {heads}.")
        self.query, self.key, self.value, self.out = linears([(dim, width)] * 3 + [(width, dim)], key=key)
        self.score = score
        self.heads = heads

    def keys_values(self, tokens: Float[Array, "k dim"]) -> tuple[Array, Array]:
        """Keys and values `(head, k, width / head)` of context tokens."""
        return self._split(self.key, tokens), self._split(self.value, tokens)

    def __call__(
        self,
        tokens: Float[Array, "q dim"],
        keys_values: tuple[Array, Array],
        *,
        q_index: Index | None = None,
        k_index: Index | None = None,
        mask: Bool[Array, " k"] | None = None,
        axis: str | None = None,
    ) -> Float[Array, "q dim"]:
        """Let every token attend to keys and values made before; `axis` as in `scan_attention`."""
        keys, values = keys_values
        mixed = scan_attention(
            self._split(self.query, tokens),
            keys,
            values,
            score=self.score,
            q_index=q_index,
            k_index=k_index,
            mask=mask,
            axis=axis,
        )
        return jax.vmap(self.out)(jnp.moveaxis(mixed, 0, 1).reshape(len(tokens), mixed.shape[0] * mixed.shape[2]))

    def _split(self, layer: eqx.nn.Linear, tokens: Array) -> Array:
        wide = jax.vmap(layer)(tokens)
        return jnp.moveaxis(wide.reshape(len(tokens), self.heads, wide.shape[1] // self.heads), 1, 0)
