"""Numbers and units as text, for notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from results.counts import plural

CITATIONS = {
    "shallue_2019_digitized": "Shallue et al. 2019",
    "zhang_2024": "Zhang et al. 2024",
    "mlperf_rcp": "MLPerf",
}
"""What people call the packaged sources of other authors."""
_TIMES = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0), ("seconds", 1.0))


def sizes(batch_sizes: Sequence[int]) -> str:
    """``batch size 8``, ``batch sizes 8, 16``."""
    return ("batch size " if len(batch_sizes) == 1 else "batch sizes ") + ", ".join(
        map(str, batch_sizes)
    )


def unit(each: Iterable[object]) -> str:
    """What one example of these trials is: ``image``; an ``example`` where that is not recorded, or
    not one thing."""
    named = {text for text in each if isinstance(text, str)}
    return named.pop() if len(named) == 1 else "example"


def units(each: Iterable[str]) -> str:
    """What batch sizes and examples of these units count: ``images``; of several, ``examples``."""
    named = {*each}
    return plural(named.pop()) if len(named) == 1 else "examples"


def short(number: float) -> str:
    """Whole from 10 on, three significant digits at most, thousands apart."""
    if number < 10:
        return f"{number:.3g}"
    digits = len(str(int(number))) - 3
    return f"{round(number, -max(digits, 0)):,.0f}"


def time_unit(seconds: float) -> tuple[str, float]:
    """The longest unit of which these are 1.5 at least, or seconds, and the seconds of one."""
    return next(((name, s) for name, s in _TIMES if seconds >= 1.5 * s), _TIMES[-1])


def interval(
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    number: Callable[[float], str] = short,
) -> str:
    """``64 [48, 90]`` where it is reached; ``≥ 48`` or ``≤ 90`` where it is bounded; else ``open``.

    ``number`` is the text of one number.
    """
    if low is not None and high is not None:
        ends = f"[{number(low)}, {number(high)}]"
        return f"{number(value)} {ends}" if value is not None else ends
    if low is not None:
        return f"≥ {number(low)}"
    return "open" if high is None else f"≤ {number(high)}"
