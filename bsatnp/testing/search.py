"""The search for the simplest case that breaks a law."""

import importlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.testing.compare import Off

#: How many simpler cases are tried once one is found that breaks a law.
_TRIES = 300


class LawError(AssertionError):
    """A law does not hold.

    Attributes:
        law: the law, in words.
        case: the simplest case found: names to elements, points and so on.
        deviation: how far off it is.
        allowed: what rounding explains.
    """

    def __init__(
        self, subject: str, law: str, case: Mapping[str, Any], deviation: float, allowed: float, why: str = ""
    ):
        self.law, self.case, self.deviation, self.allowed = law, dict(case), deviation, allowed
        where = "; ".join(f"{name} = {_show(value)}" for name, value in case.items())
        if np.isfinite(deviation) or not why:
            why = f"off by {deviation:.3g} (allowed {allowed:.3g})" + (why and f"; {why}")
        super().__init__(f"{subject} breaks the law '{law}': {why}{' at ' if where else ''}{where}.")


def hypothesis() -> Any:
    """The hypothesis package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("hypothesis")
    except ImportError:
        raise ImportError("`bsatnp.testing` needs hypothesis, which `pip install bsatnp[testing]` brings.") from None


def hold(
    subject: str,
    law: str,
    draws: Mapping[str, Any],
    off: Callable[..., Off],
    *,
    examples: int,
    why: Callable[..., str] = lambda **case: "",
) -> None:
    """Raise LawError for the simplest case at which `off(**case)` deviates by clearly more than is allowed.

    Args:
        subject: name of what is checked.
        law: the law, in words.
        draws: a strategy for every argument of `off`.
        off: compares both sides of the law.
        examples: number of cases to try.
        why: what to say of the case besides how far off it is.
    """
    h = hypothesis()
    cases = importlib.import_module("hypothesis.strategies").fixed_dictionaries(dict(draws))

    def find(broken: Callable[[dict], bool], *phases: Any) -> None:
        settings = h.settings(max_examples=examples, deadline=None, database=None, phases=phases, print_blob=False)
        try:
            h.find(cases, broken, settings=settings, random=random.Random(0))
        except (h.errors.NoSuchExample, _Enough):
            pass

    ratios = [0.0]
    find(lambda case: ratios.append(_ratio(off(**case))) or False, h.Phase.generate)
    if max(ratios) <= 1:
        return
    # the simplest case that is nearly as bad as the worst, not one that is only just beyond rounding
    bar = max(1.0, max(ratios) / 10)
    found: list[tuple[dict, Off]] = []
    tries = 0

    def simpler(case):
        nonlocal tries
        tries += bool(found)
        if tries > _TRIES:
            raise _Enough
        how = off(**case)
        if _ratio(how) >= bar:
            found.append((case, how))
        return _ratio(how) >= bar

    find(simpler, h.Phase.generate, h.Phase.shrink)
    case, how = found[-1]
    raise LawError(subject, law, case, *how, why(**case))


class _Enough(BaseException):
    """Ends a search from within; hypothesis would take an Exception for one more fault."""


def _ratio(off: Off) -> float:
    """How many times what is allowed; infinite for NaN."""
    if off.allowed > 0 and not np.isnan(off.deviation):
        return off.deviation / off.allowed
    return 0.0 if off.deviation == 0 else np.inf


def compiles(subject: str, law: str, call: Callable[[], Any]) -> None:
    """Raise LawError where `call` fails with anything but a broken law."""
    try:
        call()
    except LawError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise LawError(subject, law, {}, np.inf, 0.0, f"{type(error).__name__}: {text[:300]}") from error


def name(subject: Any) -> str:
    """What to call the subject of a check."""
    inner = getattr(subject, "group", None)
    own = getattr(subject, "__name__", type(subject).__name__)
    component = getattr(subject, "component", None)
    return own if inner is None else f"{own}({'' if component is None else f'{component!r}, '}{name(inner)})"


def _show(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_show(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_show, value)) + ")"
    if isinstance(value, jax.Array | np.ndarray) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return " ".join(np.array2string(np.asarray(value), precision=5, separator=", ", threshold=60).split())
    return repr(value)
