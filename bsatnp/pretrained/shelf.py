"""The weights of the package: found by name, checked, loaded."""

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

from bsatnp import checkpoint
from bsatnp.checkpoint import CheckpointError
from bsatnp.pretrained.cards import Card

#: Where the weights of the package and their cards are.
WEIGHTS = Path(__file__).parent / "weights"

_NAME = re.compile(r"[a-z0-9-]+-v[1-9]\d*")


def names(folder: Path = WEIGHTS) -> tuple[str, ...]:
    """All names, with their versions."""
    stems = (path.stem for path in folder.glob("*.json"))
    return tuple(sorted((stem for stem in stems if _NAME.fullmatch(stem)), key=_version))


def card(name: str, folder: Path = WEIGHTS) -> Card:
    """What is known of the weights of that name.

    Raises:
        ValueError: no such weights; the message lists those that there are.
    """
    return Card.from_json((folder / f"{_full(name, folder)}.json").read_text())


def load(name: str, folder: Path = WEIGHTS) -> Any:
    """The trained model of that name.

    Raises:
        ValueError: no such weights; the message lists those that there are.
        CheckpointError: the file is not the one of its card.
    """
    known = card(name, folder)
    path = folder / f"{known.name}.npz"
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != known.sha256:
        raise CheckpointError(f"{path} is missing or not the file of its card; install the package again.")
    return checkpoint.load(path)


def add(model: Any, name: str, folder: Path = WEIGHTS, **facts: Any) -> Card:
    """Put a model on the shelf under a name that ends in its version; `facts` are the other fields of its `Card`.

    Raises:
        ValueError: a name without a version, or one that is taken.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"`name` must be lower-case words and a version, such as 'gp-bsa-tnp-v1', got {name!r}.")
    if name in names(folder):
        raise ValueError(f"`name` must be new, since weights of a version never change, got {name!r}.")
    blank = Card(name=name, sha256="", **facts)
    blank.to_json()  # nothing is written where the facts make no card
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(folder / f"{name}.npz", model)
    digest = hashlib.sha256((folder / f"{name}.npz").read_bytes()).hexdigest()
    found = dataclasses.replace(blank, sha256=digest)
    (folder / f"{name}.json").write_text(found.to_json())
    return found


def _full(name: str, folder: Path) -> str:
    known = names(folder)
    fitting = [full for full in known if name in (full, full.rpartition("-v")[0])]
    if not fitting:
        raise ValueError(f"`name` must be one of {list(known)}, got {name!r}.")
    return fitting[-1]


def _version(name: str) -> tuple[str, int]:
    stem, _, version = name.rpartition("-v")
    return stem, int(version)
