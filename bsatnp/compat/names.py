"""Named arrays of a model of another package, and the layers here that they belong in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from bsatnp._types import Key
from bsatnp.layers import MLP, LayerNorm

_Tree = TypeVar("_Tree")


class Source:
    """Arrays by name, such as "enc/norm/scale", which know which of them were taken.

    A view made by `under` or `stack` sees a part of them by shorter names; what it takes counts for the whole.

    Args:
        params: nested dictionaries of arrays. Where there is a "params" among them, its names stand for themselves and
            those of other collections are "batch_stats/…" and so on.

    Raises:
        ValueError: other containers, numbers that are no floats or not finite.
    """

    def __init__(self, params: Mapping[str, Any]):
        paths: dict[str, Array] = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(dict(params)):
            name = "/".join(str(getattr(part, "key", part)) for part in path)
            if not all(isinstance(part, jax.tree_util.DictKey) for part in path) or not eqx.is_inexact_array(leaf):
                raise ValueError(f"`params` must be nested dictionaries of arrays of floats, got another at {name}.")
            paths[name] = jnp.asarray(leaf)
            if not bool(jnp.isfinite(paths[name]).all()):
                raise ValueError(f"`params` must be finite, got {name} with numbers that are not.")
        self.arrays: dict[str, Array] = {name.removeprefix("params/"): leaf for name, leaf in paths.items()}
        self.taken: set[str] = set()
        self._prefixes: tuple[str, ...] = ("",)
        self._stacked = False

    def under(self, prefix: str) -> "Source":
        """A view of the names that begin with `prefix` and a slash."""
        return self._view([f"{mine}{prefix}/" for mine in self._prefixes], stacked=self._stacked)

    def stack(self, prefixes: Sequence[str]) -> "Source":
        """A view of several parts with the same names, whose arrays are stacked on a new leading axis.

        Raises:
            ValueError: no parts.
        """
        if not prefixes:
            raise ValueError(f"`params` must hold at least one block, got {self.children()}.")
        (mine,) = self._prefixes
        return self._view([f"{mine}{prefix}/" for prefix in prefixes], stacked=True)

    def _view(self, prefixes: Sequence[str], *, stacked: bool) -> "Source":
        view = object.__new__(Source)
        view.arrays, view.taken = self.arrays, self.taken
        view._prefixes, view._stacked = tuple(prefixes), stacked
        return view

    def has(self, name: str) -> bool:
        """Whether there is an array of that name, or any below it."""
        full = self._prefixes[0] + name
        return full in self.arrays or any(other.startswith(f"{full}/") for other in self.arrays)

    def children(self) -> list[str]:
        """The first parts of the names that this view sees, of its first part where it is a stack."""
        prefix = self._prefixes[0]
        return sorted({name[len(prefix) :].split("/")[0] for name in self.arrays if name.startswith(prefix)})

    def count(self, name: str) -> int:
        """How many of `name`_0, `name`_1, … there are."""
        return sum(child.rpartition("_")[0] == name for child in self.children())

    def get(self, name: str) -> Array:
        """The array of that name.

        Raises:
            ValueError: there is none.
        """
        full = [prefix + name for prefix in self._prefixes]
        missing = [one for one in full if one not in self.arrays]
        if missing:
            raise ValueError(f"`params` must hold {', '.join(missing)}, got {sorted(self.arrays)}.")
        self.taken.update(full)
        found = [self.arrays[one] for one in full]
        if not self._stacked:
            return found[0]
        shapes = sorted({array.shape for array in found})
        if len(shapes) > 1:
            raise ValueError(f"`params` must have one shape for {full[0]} in every block, got {shapes}.")
        return jnp.stack(found)

    def widths(self, name: str) -> list[int]:
        """Widths of the layers `name`/Dense_0, `name`/Dense_1 and so on of a network."""
        inside = self.under(name)
        return [inside.get(f"Dense_{i}/bias").shape[-1] for i in range(inside.count("Dense"))]

    def linear(self, layer: eqx.nn.Linear, name: str) -> eqx.nn.Linear:
        """`layer` with the kernel and bias of `name`."""
        new = jnp.swapaxes(self.get(f"{name}/kernel"), -1, -2), self.get(f"{name}/bias")
        return replace(layer, lambda x: (x.weight, x.bias), new)

    def mlp(self, network: MLP, name: str) -> MLP:
        """`network` with the layers `name`/Dense_0, `name`/Dense_1 and so on."""
        layers = tuple(self.linear(layer, f"{name}/Dense_{i}") for i, layer in enumerate(network.layers))
        return eqx.tree_at(lambda x: x.layers, network, layers)

    def network(self, like: MLP, name: str, *, n_out: int | None = None) -> MLP:
        """A network with the layers of `name`, however many and wide, and the activation of `like`.

        Raises:
            ValueError: another number of outputs than `n_out`, where that is given.
        """
        widths = self.widths(name)
        if not widths or n_out not in (None, widths[-1]):
            raise ValueError(f"`params` must hold a network {name} with {n_out or 'some'} outputs, got {widths}.")
        empty = template(lambda key: MLP(like.n_in, widths, activation=like.activation, key=key))
        lead = (len(self._prefixes),) if self._stacked else ()
        empty = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), empty)
        return self.mlp(empty, name)

    def norm(self, layer: LayerNorm, name: str) -> LayerNorm:
        """`layer` with the scale and bias of `name`."""
        new = self.get(f"{name}/scale"), self.get(f"{name}/bias")
        return replace(layer, lambda x: (x.norm.weight, x.norm.bias), new)

    def finish(self) -> None:
        """Raise ValueError, with their names, where arrays were not taken."""
        unknown = sorted(set(self.arrays) - self.taken)
        if unknown:
            raise ValueError(f"`params` must hold nothing that the model does not use, got {unknown}.")


def template(make: Callable[[Key], _Tree]) -> _Tree:
    """What `make` makes given a key, with shapes in place of its arrays: nothing is drawn, all has to be filled."""
    return eqx.filter_eval_shape(lambda: make(jax.random.key(0)))


def replace(tree: _Tree, where: Any, new: tuple) -> _Tree:
    """Replace arrays by others of the same shape.

    Raises:
        ValueError: shapes that differ.
    """
    for old, value in zip(where(tree), new, strict=True):
        if old.shape != value.shape:
            raise ValueError(f"`params` must fit the other arguments: expected shape {old.shape}, got {value.shape}.")
    return eqx.tree_at(where, tree, new)
