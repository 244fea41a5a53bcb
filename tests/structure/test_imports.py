"""The rooms of the package and who may import whom: the table of the design, held to the code.

Where the code needs less than the design allows, the table here is the stricter one. Beyond it goes `train`, which
writes its state with `checkpoint`.
"""

import ast
import pathlib
import sys

import pytest

import bsatnp

ROOT = pathlib.Path(bsatnp.__file__).parent

#: Rooms to the rooms they may import. `models.base` is a room of its own: training and prediction know it and no model.
ALLOWED = {
    "_types": set(),
    "_exponential": set(),
    "_sphere": {"_types"},
    "devices": {"_types"},
    "groups": {"_types", "_sphere"},
    "bias": {"_types", "_exponential", "groups"},
    "attention": {"_types", "_exponential"},
    "tasks": {"_types"},
    "likelihoods": {"_types"},
    "metrics": {"_types", "likelihoods"},
    "layers": {"_types", "groups", "attention", "bias"},
    "models.base": {"_types", "devices", "groups", "likelihoods", "tasks"},
    "models": {"_types", "groups", "bias", "layers", "likelihoods", "tasks", "models.base"},
    "train": {"_types", "devices", "models.base", "metrics", "tasks", "checkpoint"},
    "predict": {"_types", "devices", "models.base", "likelihoods", "tasks"},
    "nearest": {"_types", "models.base", "likelihoods", "predict", "tasks"},
    "joint": {"_types", "devices", "models.base", "likelihoods", "tasks"},
    "checkpoint": {"_types"},
    "pretrained": {"checkpoint"},
    "compat": {"_types", "models", "models.base", "layers", "bias", "groups", "likelihoods"},
    "frames": {
        *("_types", "groups", "bias", "layers", "likelihoods", "metrics", "models.base", "models", "tasks"),
        *("train", "predict", "joint", "checkpoint", "datasets"),
    },
    "cli": {"_types", "groups", "frames", "testing", "likelihoods", "models.base", "checkpoint"},
    "__main__": {"cli"},
    "simulate": {"_types", "_sphere", "tasks"},
    "datasets": {"_types", "tasks"},
    "plot": {"_types", "tasks", "likelihoods", "metrics", "bias", "groups"},
    "testing": {"_types", "groups", "bias", "likelihoods", "models.base", "tasks"},
}

#: Packages that any module may import at its top.
EVERYWHERE = {"jax", "jaxtyping", "numpy", "equinox"}
#: Packages that belong to some rooms.
ELSEWHERE = {"optax": {"train"}, "tqdm": {"train", "predict", "nearest"}, "scipy": {"nearest", "layers"}}
#: Packages for inside a function, and the rooms that may have them there.
LAZY = {
    "matplotlib": {"plot"},
    "cartopy": {"plot"},
    "pandas": {"frames", "datasets"},
    "xarray": {"frames", "datasets"},
    "hypothesis": {"testing"},
    "zarr": {"frames", "datasets"},
}
#: Parts of the standard library that are no business of a library: it logs nothing and pickles nothing.
NOT_HERE = {"logging", "pickle", "shelve", "argparse", "configparser", "warnings"}
#: But one room has options to parse, and one data to doubt.
BUT_HERE = {("cli", "argparse"), ("cli", "warnings"), ("frames", "warnings")}


def room_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "models.base" if parts == ("models", "base") else parts[0]


def imports(source: str, *, top_only: bool = False):
    """Dotted names that a module imports, `from a import b` as a.b."""
    tree = ast.parse(source)
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if top_only and node in inside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            if node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def own_rooms(source: str) -> set[str]:
    """Rooms that a module imports."""
    found = set()
    for name in imports(source):
        parts = name.split(".")
        if parts[0] != "bsatnp" or len(parts) == 1:
            continue
        base = parts[1:3] == ["models", "base"] or parts[1:3] in (
            ["models", "AbstractModel"],
            ["models", "Conditioned"],
        )
        found.add("models.base" if base else parts[1])
    return found


def sins(path_room: str, source: str) -> list[str]:
    """What a module of a room imports against the table."""
    found = [f"{path_room} imports {room}" for room in own_rooms(source) - ALLOWED[path_room] - {path_room}]
    for name in imports(source):
        package = name.split(".")[0]
        if (path_room, package) in BUT_HERE:
            continue
        if package in NOT_HERE or (package in LAZY and path_room not in LAZY[package]):
            found.append(f"{path_room} imports {package}")
    for name in imports(source, top_only=True):
        package = name.split(".")[0]
        if package == "bsatnp" or package in EVERYWHERE or path_room in ELSEWHERE.get(package, set()):
            continue
        if package in LAZY or not _standard(package):
            found.append(f"{path_room} imports {package} at its top")
    return found


def _standard(package: str) -> bool:
    return package in sys.stdlib_module_names


MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in MODULES} <= set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path):
    assert sins(room_of(path), path.read_text()) == []


def test_the_table_has_no_cycle():
    def reach(room, seen=()):
        assert room not in seen, f"{' → '.join([*seen, room])} is a cycle"
        for lower in ALLOWED[room]:
            reach(lower, (*seen, room))

    for room in ALLOWED:
        reach(room)


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("attention", "from bsatnp.bias import Linear", "attention imports bias"),
        ("attention", "def f():\n    import bsatnp.bias", "attention imports bias"),
        ("models", "from bsatnp import train", "models imports train"),
        ("datasets", "from bsatnp.models import BSATNP", "datasets imports models"),
        ("train", "from bsatnp.models.bsatnp import BSATNP", "train imports models"),
        ("plot", "import matplotlib.pyplot as plt", "plot imports matplotlib at its top"),
        ("tasks", "def f():\n    import pandas", "tasks imports pandas"),
        ("tasks", "import logging", "tasks imports logging"),
        ("models", "import hydra", "models imports hydra at its top"),
        ("groups", "import importlib\nimportlib.import_module('pickle')", "groups imports pickle"),
    ],
)
def test_an_import_against_the_table_is_found(room, source, expected):
    assert expected in sins(room, source)


def test_what_the_table_allows_passes():
    assert sins("train", "import optax\nfrom bsatnp.models.base import AbstractModel") == []
    assert sins("plot", "def f():\n    import matplotlib.pyplot") == []


def test_the_root_only_re_exports():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    for node in tree.body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)
        assert text or plain, ast.unparse(node)
