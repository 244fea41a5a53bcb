"""Arrays over the devices of a mesh, on one host or many."""

from collections.abc import Collection
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

_Tree = TypeVar("_Tree")


def checked(mesh: Mesh, axes: Collection[str]) -> Mesh:
    """The mesh, for functions that leave it to the compiler where arrays go.

    Args:
        mesh: as `jax.make_mesh` gives it.
        axes: the names that its axes may have.

    Raises:
        ValueError: another object, or an axis with another name.
    """
    if not isinstance(mesh, Mesh) or not set(mesh.axis_names) <= set(axes):
        got = mesh.axis_names if isinstance(mesh, Mesh) else type(mesh).__name__
        raise ValueError(
            f"`mesh` must be a jax.sharding.Mesh with axes named {' or '.join(map(repr, axes))}, got {got}."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def size(mesh: Mesh | None, axis: str) -> int:
    """Devices along an axis; 1 where there is none of that name."""
    return 1 if mesh is None else dict(mesh.shape).get(axis, 1)


def spec(mesh: Mesh, axis: str) -> PartitionSpec:
    """A leading axis spread along an axis of the mesh, where it has one of that name."""
    return PartitionSpec(axis) if axis in mesh.axis_names else PartitionSpec()


def placed(tree: _Tree, mesh: Mesh, axis: str | None = None) -> _Tree:
    """The tree with its arrays on the mesh: the same on every device, or their leading axes spread along one of its.

    Every process has to come with the same arrays; it puts on its own devices what belongs there.
    """
    where = NamedSharding(mesh, PartitionSpec() if axis is None else PartitionSpec(axis))

    def put(leaf):
        if not eqx.is_array_like(leaf) or not hasattr(leaf, "shape"):
            return leaf
        if isinstance(leaf, jax.Array) and leaf.sharding == where:
            return leaf
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, where, lambda part: host[part])

    return jax.tree.map(put, tree)


def fetched(tree: _Tree) -> _Tree:
    """The tree with its arrays whole and on the host, also where other processes hold parts of them."""

    def get(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.asarray(leaf)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(get, tree)


def in_turn(name: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)
