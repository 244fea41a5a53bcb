"""Compare the descriptions of two trees, and say in one sentence where they differ."""

from collections.abc import Iterable, Iterator
from typing import Any

_CONTAINERS = ("fields", "dict", "list", "tuple", "set", "frozenset", "partial")


def array_nodes(tree: Any) -> Iterator[dict]:
    """Every array of a description."""
    if isinstance(tree, dict) and "array" in tree:
        yield tree
    elif isinstance(tree, dict):
        for kind, inside in tree.items():  # the names of parts, which may be called "array" too, are no kinds
            for child in inside.values() if kind in ("dict", "fields") else [inside]:
                yield from array_nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from array_nodes(child)


def difference(file: Any, here: Any, path: str = "", *, fixed: bool) -> str | None:
    """One sentence on the first place where two descriptions differ, None where they agree.

    Args:
        file: the description in a file.
        here: the description of what the file must agree with.
        path: where in the tree they are.
        fixed: whether plain values must be equal; those of modules always must.
    """
    differs = f"{f'`{path}`' if path else 'the tree'} is {_show(file)} in the file, but {_show(here)} here."
    if _is_opaque(file) and isinstance(here, dict) and _last(file["opaque"]) == _last(here.get("class")):
        return None  # files of before say nothing of objects that are their attributes
    kinds = [_plain(node) for node in (file, here)]
    if kinds[0] or kinds[1]:
        agree = file == here if fixed else True
        return None if kinds[0] == kinds[1] and agree else differs
    if isinstance(file, list) and isinstance(here, list):
        return _inside(file, here, path, fixed=fixed)
    if not (isinstance(file, dict) and isinstance(here, dict)) or _name(file) != _name(here):
        return differs
    if "array" in file and "array" in here:
        same = all(file.get(key) == here.get(key) for key in ("shape", "dtype", "kind", "impl"))
        return None if same else differs
    inside = next((key for key in _CONTAINERS if key in file and key in here), None)
    if inside is None:
        agree = "function" in file or file == here
        if _is_opaque(file):  # files of before do not tell their values
            agree = None in (file.get("value"), here.get("value")) or file["value"] == here["value"]
        return None if agree else differs
    mine, yours = file[inside], here[inside]
    if inside == "dict" and "ordered" not in file:  # whose order means nothing: JAX sorts the keys
        mine, yours = dict(sorted(mine.items())), dict(sorted(yours.items()))
    return _inside(mine, yours, path, fixed=fixed or "class" in file)


def _inside(file: Any, here: Any, path: str, *, fixed: bool) -> str | None:
    mine, yours = _children(file), _children(here)
    if list(mine) != list(yours):
        where = f"`{path}`" if path else "the tree"
        return f"{where} holds {_brief(mine)} in the file, but {_brief(yours)} here."
    found = (difference(mine[key], yours[key], f"{path}/{key}".lstrip("/"), fixed=fixed) for key in mine)
    return next((sentence for sentence in found if sentence), None)


def _name(node: dict) -> list[str]:
    """The last name of a class or function; a script and a module that import it call the rest differently."""
    return [_last(node.get(key)) for key in ("class", "named", "function", "opaque", "keys", "ordered")]


def _is_opaque(node: Any) -> bool:
    return isinstance(node, dict) and "opaque" in node


def _last(name: Any) -> str:
    return str(name).split(".")[-1]


def _plain(node: Any) -> str | None:
    """The name of the type of a plain value, None for everything else."""
    if isinstance(node, dict):
        return "float" if "float" in node else None
    return None if isinstance(node, list) else type(node).__name__


def _children(value: Any) -> dict:
    return value if isinstance(value, dict) else {str(i): child for i, child in enumerate(value)}


def _brief(names: Iterable[str]) -> str:
    names = list(names)
    few = len(names) <= 6 and names != [str(i) for i in range(len(names))]
    return f"{names}" if few else f"{len(names)} parts"


def _show(node: Any) -> str:
    if not isinstance(node, dict):
        return repr(node)
    if "array" in node:
        kind = node.get("kind")
        what = f"{node.get('impl')} key" if kind == "key" else node.get("dtype")
        return f"{what} {tuple(node.get('shape', ()))}" + (" of NumPy" if kind in ("numpy", "scalar") else "")
    if "value" in node:
        return node["value"]
    key, value = next(iter(node.items()), ("dict", {}))
    return str(value) if key in ("class", "named", "function", "opaque", "float", "dtype") else f"a {key}"
