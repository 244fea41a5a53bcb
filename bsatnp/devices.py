"""Compilation for a device, and arrays over the devices of a mesh, on one host or many."""

import contextlib
import functools
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bsatnp._types import is_traced

_Tree = TypeVar("_Tree")
_Args = ParamSpec("_Args")
_Out = TypeVar("_Out")


class jit(Generic[_Args, _Out]):
    """`eqx.filter_jit` that uses the whole vector registers of a CPU, where XLA by itself keeps to 256 bits.

    With AVX-512 exponentials take little more than half the time, and attention is a quarter to a third faster; other
    machines see no difference. Called while something else is compiled or differentiated, the function becomes part of
    that.

    Args:
        function: what to compile.
        donate: whose memory may be reused, as for `eqx.filter_jit`.
    """

    def __init__(self, function: Callable[_Args, _Out], *, donate: Literal["all", "all-except-first", "none"] = "none"):
        self._function, self._donate = function, donate
        functools.update_wrapper(self, function, updated=())

    def __get__(self, instance: Any, owner: Any) -> Any:
        """Bind a method to its instance."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: _Args.args, **kwargs: _Args.kwargs) -> _Out:
        """Call the compiled function."""
        within = is_traced((self._function, args, kwargs)) or is_traced(jnp.zeros(()))
        return (self._within if within else self._alone)(*args, **kwargs)

    def lower(self, *args: _Args.args, **kwargs: _Args.kwargs) -> Any:
        """Lower the function, as `eqx.filter_jit` does."""
        return self._alone.lower(*args, **kwargs)

    @functools.cached_property
    def _within(self) -> Any:
        return self._compiled()

    @functools.cached_property
    def _alone(self) -> Any:
        return self._compiled(compiler_options=_compiler_options())

    def _compiled(self, **options: Any) -> Any:
        filter_jit: Any = eqx.filter_jit  # whose types do not know what it passes on to `jax.jit`
        return filter_jit(self._function, donate=self._donate, **options)


@functools.cache
def _compiler_options() -> dict[str, Any]:
    options = {"xla_cpu_prefer_vector_width": 512}
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:  # XLA promises no name of an option
        return {}
    return options


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


def sharing(mesh: Mesh | None) -> AbstractContextManager[Any]:
    """A context in which attention spreads the tasks of a batch over the devices of a mesh.

    A compiled function that is called in it has to be given arrays on that mesh, see `placed`. No more than that call
    belongs in it: what takes a mesh of its own, such as `predict`, does not run there.

    Args:
        mesh: as `checked` gives it, with an axis named "batch"; None for a context without effect.
    """
    return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


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
        if isinstance(leaf, jax.Array) and leaf.sharding == where:
            return leaf
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, where, lambda part: host[part])

    return over_arrays(put, tree)


def fetched(tree: _Tree) -> _Tree:
    """The tree with its arrays whole and on the host, also where other processes hold parts of them."""

    def get(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.asarray(leaf)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return over_arrays(get, tree)


def over_arrays(function: Callable[[Any], Any], tree: _Tree) -> _Tree:
    """The tree with `function` of each of its arrays, of typed keys by their data; all else as it is."""

    def one(leaf):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(function(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return function(leaf) if eqx.is_array(leaf) else leaf

    return jax.tree.map(one, tree)


def is_shared(number: int) -> bool:
    """Whether every process came with the same number."""
    return jax.process_count() == 1 or len(set(multihost_utils.process_allgather(np.int32(number)).tolist())) == 1


def in_turn(name: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)
