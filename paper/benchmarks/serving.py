"""What a worker of the benchmark answers: one JSON object a line, on standard input and output.

A worker runs in the environment of its peer and imports nothing from this package but this file.
"""

import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

#: What a peer makes of a row: the call to be timed, which waits for its result, and what else is to be recorded.
Prepared = tuple[Callable[[], Any] | None, dict[str, Any]]


def serve(prepare: Callable[[dict[str, Any]], Prepared], versions: dict[str, str]) -> None:
    """Answer until the input ends: `prepare` a row, or `time` the second of two calls of one prepared under a name."""
    out, calls = sys.stdout, {}
    with contextlib.redirect_stdout(sys.stderr):
        _say(out, {"versions": versions})
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                _say(out, _answer(asked, calls, prepare))
            except (RuntimeError, MemoryError, ValueError, TypeError, AttributeError, ImportError) as error:
                _say(out, {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]})


def temporary_mib(lowered: Any) -> float:
    """Temporary memory of a lowered function, of JAX or of Equinox, once it is compiled."""
    compiled = lowered.compile()
    return getattr(compiled, "compiled", compiled).memory_analysis().temp_size_in_bytes / 2**20


def _answer(asked: dict[str, Any], calls: dict[str, Any], prepare: Callable[..., Prepared]) -> dict[str, Any]:
    if asked["do"] == "prepare":
        call, facts = prepare(asked["row"])
        if call is not None:
            call()
            calls[asked["name"]] = call
        return facts | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    calls[asked["name"]]()  # caches and pages are not those of the process that ran before
    start = time.perf_counter()
    calls[asked["name"]]()
    return {"ms": 1e3 * (time.perf_counter() - start)}


def _say(out: Any, answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()
