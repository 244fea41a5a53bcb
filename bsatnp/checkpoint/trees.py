"""Trees to JSON and named arrays, and back."""

import collections
import dataclasses
import functools
import inspect
import math
import sys
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import is_traced
from bsatnp.checkpoint.archive import DTYPES, CheckpointError, stored_dtype
from bsatnp.checkpoint.compare import array_nodes

_ACTIVATIONS = (
    "relu relu6 gelu silu sigmoid softplus tanh elu selu celu leaky_relu mish hard_tanh soft_sign squareplus "
    "log_sigmoid softmax log_softmax identity hard_sigmoid hard_silu sparse_plus"
)
_ELEMENTWISE = "exp log1p expm1 sin cos tanh arctan abs square sqrt arcsinh"
_FUNCTIONS: dict[str, Any] = {
    **{f"jax.nn.{name}": getattr(jax.nn, name) for name in _ACTIVATIONS.split()},
    **{f"jax.numpy.{name}": getattr(jnp, name) for name in _ELEMENTWISE.split()},
    "equinox.nn.MLP.final_activation": inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default,
}
_UNSET = object()

#: Leaves that a state must not lose.
_DATA = (jax.Array, np.ndarray, np.generic, bool, int, float, complex, str, bytes, dict, collections.deque)

#: Levels of nesting, and bits of a plain whole number, that a header can be read back with.
_DEEPEST, _LONGEST = 64, 4096


def describe(tree: Any, *, opaque: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree as JSON, and its arrays by path in the types that a file stores.

    Args:
        tree: modules, dataclasses, named tuples, containers, arrays, plain values and known functions.
        opaque: whether what holds no value may be left out, to be brought by another tree; so may, in modules and
            dataclasses, configuration of other kinds, which is then compared as it is written.

    Raises:
        CheckpointError: a part that cannot be described, named by its path.
    """
    arrays: dict[str, np.ndarray] = {}
    return _describe(tree, "", arrays, opaque=opaque), arrays


def _describe(tree: Any, path: str, arrays: dict[str, np.ndarray], *, opaque: bool, fixed: bool = False) -> Any:
    def inner(value, name, *, fixed=fixed):
        step = str(name).replace("~", "~0").replace("/", "~1")
        return _describe(value, f"{path}/{step}", arrays, opaque=opaque, fixed=fixed)

    def several(values):
        return [inner(value, i) for i, value in enumerate(values)]

    kind = type(tree)
    if path.count("/") > _DEEPEST:
        raise CheckpointError(f"`{path[1:40]}…` must be nested no deeper than {_DEEPEST} levels to be saved.")
    if kind is int and tree.bit_length() > _LONGEST:
        raise CheckpointError(f"`{path[1:] or 'model'}` must be a number of at most {_LONGEST} bits to be saved.")
    if tree is None or kind in (bool, int, str):
        return tree
    if kind is float:
        return tree if math.isfinite(tree) else {"float": repr(tree)}
    if kind in (list, tuple):
        return {kind.__name__: several(tree)}
    if kind in (set, frozenset):
        values = enumerate(sorted(tree, key=repr))
        return {kind.__name__: [_describe(value, f"{path}/{i}", arrays, opaque=False) for i, value in values]}
    if kind in (dict, collections.OrderedDict) and (keys := {type(key) for key in tree}) in (set(), {str}, {int}):
        described: dict[str, Any] = {"dict": {str(key): inner(value, key) for key, value in tree.items()}}
        described |= {"keys": "int"} if keys == {int} else {}
        return described if kind is dict else described | {"ordered": True}
    if isinstance(tree, jax.Array | np.ndarray | np.generic):
        return _describe_array(tree, path, arrays)
    if isinstance(tree, np.dtype) and tree.name in DTYPES:
        return {"dtype": tree.name}
    name = next((name for name, function in _FUNCTIONS.items() if function is tree), None)
    if name is not None or (_is_function(tree) and "<" not in tree.__qualname__):
        return {"function": name or _name(tree)}
    if kind is functools.partial and isinstance(tree, functools.partial):
        return {"partial": [inner(tree.func, "func"), several(tree.args), inner(dict(tree.keywords), "keywords")]}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return {"named": _name(kind), "fields": {n: inner(getattr(tree, n), n) for n in kind._fields}}  # pyright: ignore
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {}
        if not isinstance(tree, eqx.Module):  # which hold nothing but their fields
            _check_attributes(tree, path)
        for field in dataclasses.fields(tree):  # a default that no constructor set is no part of a module's tree
            unset = isinstance(tree, eqx.Module) and field.name not in vars(tree)
            fields[field.name] = {"unset": True} if unset else inner(getattr(tree, field.name), field.name, fixed=True)
        return {"class": _name(kind), "fields": fields}
    if _is_plain(kind) and not callable(tree):
        fields = {name: inner(value, name, fixed=True) for name, value in vars(tree).items()}
        return {"class": _name(kind), "fields": fields}
    if opaque and not any(isinstance(leaf, _DATA) for leaf in jax.tree.leaves(tree)):
        if callable(tree) or kind is object or kind is types.ModuleType:
            return {"opaque": _name(kind)}
        if fixed:
            written = repr(tree)
            return {"opaque": _name(kind)} | ({} if " at 0x" in written else {"value": written})
    raise CheckpointError(
        f"`{path[1:] or 'model'}` must be an array, a plain value, a list, a dictionary by names or whole numbers, a "
        f"module, a dataclass, an object of nothing but attributes or a named function to be saved, got "
        f"{tree if callable(tree) else kind.__name__}."
    )


def _is_function(tree: Any) -> bool:
    """Whether it is a function, or one that `jax.jit` and its like have wrapped."""
    return isinstance(tree, types.FunctionType) or (
        callable(tree) and not isinstance(tree, type) and all(hasattr(tree, n) for n in ("__wrapped__", "__qualname__"))
    )


def _is_plain(cls: type) -> bool:
    """Whether an object of the class is its attributes and nothing else."""
    bases = [base for base in cls.__mro__ if base is not object]
    return not any(base.__module__ == "builtins" or "__slots__" in vars(base) for base in bases) and (
        not dataclasses.is_dataclass(cls) and cls.__new__ is object.__new__ and cls.__dictoffset__ != 0
    )


def _check_attributes(tree: Any, path: str) -> None:
    """Raise CheckpointError for what an instance holds beside its fields, which no file would bring back."""
    known = {field.name for field in dataclasses.fields(tree)}
    others = [name for name in getattr(tree, "__dict__", {}) if name not in known]
    lost = [name for name in others if not isinstance(getattr(type(tree), name, None), functools.cached_property)]
    if lost:
        raise CheckpointError(
            f"`{path[1:] or 'model'}` must hold nothing but its fields to be saved, got {lost} of {_name(type(tree))}."
        )


def _describe_array(array: Any, path: str, arrays: dict[str, np.ndarray]) -> dict:
    node: dict[str, Any] = {"array": path[1:] or "value"}
    if np.ma.isMaskedArray(array):
        raise CheckpointError(f"`{node['array']}` must be a plain array to be saved, got a masked one.")
    if is_traced(array) or node["array"] in arrays:
        raise CheckpointError(f"`{node['array']}` must be a concrete array with a name of its own to be saved.")
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        node |= {"kind": "key", "impl": str(jax.random.key_impl(array))}
        array = jax.random.key_data(array)
    else:
        node["kind"] = "jax" if isinstance(array, jax.Array) else "numpy" if isinstance(array, np.ndarray) else "scalar"
    host = np.asarray(array)
    name = host.dtype.name
    if name not in DTYPES:
        raise CheckpointError(
            f"`{node['array']}` must hold numbers, or dates in days or shorter units, to be saved, got {host.dtype}."
        )
    arrays[node["array"]] = np.asarray(host, DTYPES[name], order="C").view(stored_dtype(name))
    return node | {"dtype": name, "shape": list(host.shape)}


def rebuild(node: Any, arrays: Mapping[str, np.ndarray], known: Mapping[str, Any], like: Any = None) -> Any:
    """The tree that `node` describes.

    Args:
        node: what `describe` gave.
        arrays: the arrays it names, in their stored types.
        known: classes and functions it may name.
        like: a tree of the same description, that brings classes, functions and parts left out.
    """

    def inner(child, pick):
        return rebuild(child, arrays, known, None if like is None else pick(like))

    if not isinstance(node, dict):
        return node
    if "array" in node:
        return _rebuild_array(node, arrays[node["array"]])
    if "unset" in node:
        return _UNSET
    if "float" in node:
        return float(node["float"])
    if "dtype" in node:
        return DTYPES[node["dtype"]]
    for kind in (list, tuple):
        if kind.__name__ in node:
            return kind(inner(value, lambda t, i=i: t[i]) for i, value in enumerate(node[kind.__name__]))
    for kind in (set, frozenset):
        if kind.__name__ in node:
            return kind(rebuild(value, arrays, known) for value in node[kind.__name__])
    if "dict" in node:
        named = {int(key) if "keys" in node else key: value for key, value in node["dict"].items()}
        found = {key: inner(value, lambda t, key=key: t[key]) for key, value in named.items()}
        return collections.OrderedDict(found) if "ordered" in node else found
    if "opaque" in node:
        return like
    if "function" in node:
        function = like if like is not None else _FUNCTIONS.get(node["function"]) or _find(node["function"], known)
        if isinstance(function, type) or not callable(function):
            raise CheckpointError(f"it needs the function {node['function']}, which must be passed in `classes`.")
        return function
    if "partial" in node:
        if like is not None and not any(array_nodes(node)):
            return like  # two partials are never equal, and trees with unequal static fields do not fit each other
        function, args, keywords = node["partial"]
        values = [inner(value, lambda t, i=i: t.args[i]) for i, value in enumerate(args)]
        return functools.partial(inner(function, lambda t: t.func), *values, **inner(keywords, lambda t: t.keywords))
    fields = {name: inner(value, lambda t, n=name: getattr(t, n)) for name, value in node["fields"].items()}
    name = node["named"] if "named" in node else node["class"]
    if like is not None:  # which the description has been compared with; its arrays need not be those of a module
        return _fill(name, type(like), fields, checked=False)
    return _fill(name, _find(name, known), fields)


def _find(name: str, known: Mapping[str, Any]) -> Any:
    """What a file calls `name`; the last part decides where a class has moved to another module."""
    last = name.split(".")[-1]
    return known.get(name) or known.get(last) or (known.get(f"bsatnp.{last}") if name.startswith("bsatnp.") else None)


def _fill(name: str, cls: Any, fields: dict[str, Any], *, checked: bool = True) -> Any:
    """An instance of `cls` with these fields, without its constructor; the checks of a module do run if `checked`.

    A module may be a stack of several, whose arrays have a leading axis that its checks never saw: they are then made
    on the first of these.
    """
    if isinstance(cls, type) and issubclass(cls, tuple) and set(getattr(cls, "_fields", ())) == set(fields):
        return cls(**fields)
    if isinstance(cls, type) and _is_plain(cls) and not inspect.isabstract(cls):
        built = object.__new__(cls)
        vars(built).update(fields)
        return built
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)) or inspect.isabstract(cls):
        raise CheckpointError(f"it needs the class {name}, which must be passed in `classes`.")
    declared = {field.name: field.default for field in dataclasses.fields(cls)}
    values = declared | {key: declared.get(key) if value is _UNSET else value for key, value in fields.items()}
    if list(values) != list(declared) or any(value is dataclasses.MISSING for value in values.values()):
        raise CheckpointError(f"{name} must have the fields {list(declared)}, got {list(fields)}.")
    built = object.__new__(cls)
    for key, value in values.items():
        if fields.get(key) is not _UNSET:
            object.__setattr__(built, key, value)
    if checked and isinstance(built, eqx.Module):
        _check(built)
    return built


def _check(module: eqx.Module) -> None:
    checks = [vars(base)["__check_init__"] for base in type(module).__mro__ if "__check_init__" in vars(base)]
    try:
        for check in reversed(checks):
            check(module)
    except Exception:
        arrays = [leaf for leaf in jax.tree.leaves(module) if eqx.is_array(leaf)]
        if not arrays or any(leaf.ndim == 0 or not len(leaf) for leaf in arrays):
            raise
        _check(jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, module))


def _rebuild_array(node: dict, stored: np.ndarray) -> Any:
    host = stored.view(DTYPES[node["dtype"]])
    if node["kind"] == "numpy":
        return host.copy()
    if node["kind"] == "scalar":
        return host[()]
    device = jnp.array(host, copy=True)
    if device.dtype != host.dtype:
        raise CheckpointError(f"`{node['array']}` holds {host.dtype}, which needs x64 enabled.")
    return jax.random.wrap_key_data(device, impl=node["impl"]) if node["kind"] == "key" else device


def known_names(classes: Iterable[Any]) -> dict[str, Any]:
    """Classes and functions that a file may name: those of `bsatnp`, of `equinox.nn`, and the caller's."""
    table: dict[str, Any] = {}
    shared: set[str] = set()
    for room, module in list(sys.modules.items()):
        if room.split(".")[0] != "bsatnp" or module is None:
            continue
        for value in list(vars(module).values()):
            if isinstance(value, type | types.FunctionType) and str(value.__module__).split(".")[0] == "bsatnp":
                short = f"bsatnp.{value.__name__}"  # see `_find`
                shared |= {short} if table.setdefault(short, value) is not value else set()
                table[_name(value)] = value
    table = {name: value for name, value in table.items() if name not in shared}
    table |= {f"equinox.nn.{n}": v for n, v in vars(eqx.nn).items() if isinstance(v, type) and not n.startswith("_")}
    given: list[Any] = [classes] if isinstance(classes, type) or _is_function(classes) else list(classes)
    if wrong := [value for value in given if not (isinstance(value, type) or _is_function(value))]:
        raise ValueError(f"`classes` must be classes and functions, got {wrong[0]!r}.")
    bare = Counter(value.__name__ for value in set(given))
    for value in given:
        table[_name(value)] = value
        if bare[value.__name__] == 1:  # else nothing but the whole name tells which is meant
            table[value.__name__] = value
    return table


def _name(thing: Any) -> str:
    module = str(thing.__module__)
    if module.startswith("equinox.nn.") and getattr(eqx.nn, thing.__name__, None) is thing:
        return f"equinox.nn.{thing.__name__}"
    return f"{module}.{thing.__qualname__}"
