"""Tables and numbers as text."""

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A table."""
    lines = [list(head), ["---"] * len(head), *body]
    return [f"| {' | '.join(line)} |" for line in lines]


def number(value: float | None, digits: int) -> str:
    """A number with a real minus sign; nothing where there is none."""
    return "" if value is None else f"{value:.{digits}f}".replace("-", "−")


def error(value: float | None) -> str:
    """A standard error behind a number."""
    return "" if value is None else f" ± {value:.3f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whatever gives a number of some size."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def commit(name: str) -> str:
    """The short name of a commit, with "+" where there were changes on top."""
    return name[:9] + ("+" if name.endswith("+") else "")


def hardware(*found: Mapping[str, Any]) -> str:
    """Of each machine the accelerators, or the cores and the processor where there are none."""
    return ", ".join(dict.fromkeys(map(_machine, found)))


def _machine(found: Mapping[str, Any]) -> str:
    cores = "1 core" if found["cores"] == 1 else f"{found['cores']} cores"
    if found["platform"] == "cpu":
        return f"{cores} of {found['cpu']}"
    return f"{found['devices']} × {found['device']}" if "devices" in found else found["device"]
