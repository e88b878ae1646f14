"""What a program reports: a step, and numbers by their names.

``{"step": 250, "val/loss": 3.41, "lr": 1e-3}`` in a line is a report of step 250; whatever else a
line holds is output. ``step`` counts updates: after the first one it is 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.programs.guard import Lines
from results.user_tables.formats.lines import metric_name

_LAST_STEP = 10**15


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a program says of one step."""

    step: int
    metrics: Mapping[str, float]
    """By name, with ``_`` for what a name cannot hold: ``val/loss`` is ``val_loss``. Not all of
    them need be finite."""
    no_numbers: Mapping[str, object] = field(default_factory=dict)
    """What else was said, by name."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Report | None:
        """The report of a step and what is said of it; ``None`` without a step.

        Raises:
            ExperimentError: two of its metrics would have one name.
        """
        step = said.get("step")
        if isinstance(step, bool) or not isinstance(step, (int, float)):
            return None
        if not 0 <= step <= _LAST_STEP or step != int(step):
            return None
        metrics, no_numbers, names = dict[str, float](), dict[str, object](), dict[str, str]()
        for key, value in said.items():
            if key == "step":
                continue
            name = metric_name(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                no_numbers[name] = value
                continue
            if name in names:
                raise ExperimentError(
                    f"the program reports {names[name]!r} and {key!r}, which are one name here: "
                    f"{name}",
                    hint="rename one of them in the program",
                )
            names[name], metrics[name] = key, float(value)
        return cls(step=int(step), metrics=metrics, no_numbers=no_numbers)

    @classmethod
    def of_line(cls, line: bytes) -> Report | None:
        """The report of a line that is a JSON object; ``None`` if it is none.

        Raises:
            ExperimentError: as of ``of``.
        """
        text = line.strip()
        if not (text.startswith(b"{") and text.endswith(b"}")):
            return None
        try:
            said = json.loads(text, parse_int=_number)
        except (ValueError, RecursionError):
            return None
        return cls.of(said)


def _number(digits: str) -> int | float:
    """A whole number; one that no float holds is infinite, as it would be in the metric itself."""
    return int(digits) if len(digits) < 300 else float(digits)


class Followed:
    """The lines that a program appends to a file, which it need not have made yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._lines = path, 0, Lines()

    def more(self, *, ended: bool = False) -> Iterator[bytes]:
        """The lines since the last call; of a file that has become shorter, all of them.

        ``ended``: nothing more is written.
        """
        try:
            with self._path.open("rb") as stream:
                if stream.seek(0, 2) < self._read:
                    self._read, self._lines = 0, Lines()
                stream.seek(self._read)
                while piece := stream.read(1 << 16):
                    self._read += len(piece)
                    yield from self._lines.of(piece)
        except FileNotFoundError:
            return
        if ended:
            yield from self._lines.last()
