"""JSON files of runs and results."""

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: no such content.
    """
    return _parsed(path, path.read_bytes())


def read_lines(path: Path) -> list[Any]:
    """The lines of a file of JSON lines, one at least.

    Raises:
        ValueError: another line, or none.
    """
    return [_parsed(path, line) for line in path.read_bytes().splitlines() or [b""]]


def _parsed(path: Path, text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"'{path}' must hold JSON, got what is cut or damaged: restore it, or remove it.") from error
