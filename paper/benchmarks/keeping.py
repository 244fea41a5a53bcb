"""What a benchmark measured, kept with what computed it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paper import record
from paper.runner import prepare, write


def keep(measure: Callable[[], dict[str, Any]], path: Path, table: Callable[[Path], list[str]]) -> int:
    """Measure, write one JSON, and print the table of its folder.

    Returns:
        The exit status: 0, or 2 for what was refused, which is one sentence on standard error.
    """
    try:
        prepare(path)
        found = measure() | record.made()
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    write(path, found)
    print("\n".join(table(path.parent)))
    print(path)
    return 0
