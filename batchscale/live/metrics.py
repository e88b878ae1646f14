"""The status of the live page for Prometheus, in its text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

KIND = "text/plain; version=0.0.4; charset=utf-8"
_COUNTS = ("wanted", "done", "reached", "infeasible", "dominated", "failed", "running", "left")
_LABELS = ("experiment", "workload", "optimizer")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP = {
    "trials": "Trials as batchscale status counts them: done has reached, infeasible and dominated "
    "in it, left has running.",
    "steps_per_second": "Training steps of all trials together, between the last two heartbeats of "
    "each pack.",
    "workers": "Workers, or groups of them, that train a pack.",
    "oldest_heartbeat_seconds": "Age of the oldest heartbeat of a pack in training; one comes "
    "every ten seconds.",
}


def text(status: Mapping[str, Any], now: float) -> str:
    """A status of the page as metrics; what is not known has no sample.

    Args:
        now: seconds since the epoch.
    """
    packs: Sequence[Mapping[str, Any]] = status.get("packs", ())
    heard = [pack["last_word"] for pack in packs if pack["last_word"] is not None]
    values = {
        "steps_per_second": status.get("steps_per_second"),
        "workers": len(packs),
        "oldest_heartbeat_seconds": max(0.0, now - min(heard)) if heard else None,
    }
    lines = []
    for name, help in _HELP.items():
        lines += [f"# HELP batchscale_{name} {help}", f"# TYPE batchscale_{name} gauge"]
        if name == "trials":
            lines += _trials(status.get("experiments", ()))
        elif values[name] is not None:
            lines.append(f"batchscale_{name} {values[name]}")
    return "\n".join([*lines, ""])


def _trials(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        for count in _COUNTS:
            labels = {**{name: row[name] for name in _LABELS}, "status": count}
            pairs = (f'{name}="{_escaped(v)}"' for name, v in labels.items())
            yield f"batchscale_trials{{{','.join(pairs)}}} {row[count]}"


def _escaped(value: Any) -> str:
    return "" if value is None else str(value).translate(_ESCAPES)


class Speed:
    """Steps a second of the packs in training, from their heartbeats as they come."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        """Of each pack: when it was last heard of, and its step."""
        self._speeds: dict[str, float] = {}

    def take(self, packs: pd.DataFrame, renewed: Mapping[str, float]) -> float | None:
        """The speed of all of them together; 0 where none trains, and None until one was heard of
        twice.

        Args:
            packs: a row a pack, with ``pack``, ``step`` and ``training`` (its trials that train,
                each of which takes these steps).
            renewed: when each was last heard of, in seconds since the epoch.
        """
        before, self._last = self._last, {}
        speeds: dict[str, float] = {}
        rows = packs[["pack", "step", "training"]].dropna()
        for pack, step, trials in rows.itertuples(index=False):
            heard = renewed.get(pack, 0.0)
            since, known = before.get(pack, (heard, step))
            if heard > since and step >= known:
                speeds[pack] = float((step - known) * trials / (heard - since))
            elif heard == since and pack in self._speeds:
                speeds[pack] = self._speeds[pack]
            self._last[pack] = heard, int(step)
        self._speeds = speeds
        return sum(speeds.values()) if speeds or not len(packs) else None
