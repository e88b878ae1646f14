"""Where a program reports: the key ``metrics`` of an experiment file.

Without it, by JSON objects in lines of standard output. With it,

- ``nanogpt``, ``torchtitan``, ``megatron``: by what these print;
- a regular expression with a group ``step``, and one for each metric: by lines that it is found in;
- a path below ``{folder}``, with ``*`` for what is not known before: by rows of a CSV file
  (``.csv``), by event files of TensorBoard (a folder, with ``/`` at its end), or else by lines of
  JSON in the file.

What was read before may be read again: of reports of one step the first one counts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from experiments.errors import ExperimentError
from experiments.programs.reports import Followed, Report
from results.errors import ResultsError
from results.user_tables.formats.lines import measured
from results.user_tables.formats.tensorboard_events import records, row_of
from results.user_tables.table_file import number

PRINTED = ("nanogpt", "torchtitan", "megatron")
"""Whose printed lines are known by name."""
_JSON = r"^\s*\{.*\}\s*$"
_OF_LIGHTNING = "metrics.csv"
_FOLDER = "{folder}"
_FIRST_BYTES = 200


class Source(Protocol):
    """Something in which a program reports."""

    def more(self, *, ended: bool = False) -> Iterator[Report]:
        """The reports since the last call; ``ended``: nothing more is written.

        Raises:
            ExperimentError: a report cannot be read.
        """
        ...


@dataclass(frozen=True)
class Metrics:
    """The key ``metrics``, as it is given."""

    text: str | None = None

    def check(self) -> None:
        """
        Raises:
            ExperimentError: it is none of what the key may be.
        """
        text = self.text
        if text is None or text in PRINTED:
            return
        if self.pattern is not None:
            if len(self._compiled.groupindex) < 2:
                raise ExperimentError(
                    f"metrics {text!r} names no metric beside step",
                    hint="a group for each, by its name: (?P<val_loss>[0-9.]+)",
                )
        elif not self._is_below_folder:
            raise ExperimentError(
                f"metrics {text!r} is not a file below {{folder}}, so that trials would share it",
                hint='for example: metrics: "{folder}/log.jsonl", "{folder}/metrics.csv", '
                f'"{{folder}}/tensorboard/", {", ".join(PRINTED)}, or a regular expression with a '
                "group (?P<step>…)",
            )

    @property
    def _is_below_folder(self) -> bool:
        first, *parts = (self.text or "").split("/")
        return first == _FOLDER and bool(parts) and not any("{" in p or p == ".." for p in parts)

    @property
    def several(self) -> bool:
        """Whether it may report in several files."""
        text = self.text or ""
        return self._is_below_folder and ("*" in text or text.endswith("/"))

    @property
    def pattern(self) -> str | None:
        """The regular expression, if it is one."""
        return self.text if self.text and "(?P<step>" in self.text else None

    @property
    def printed(self) -> str:
        """What the lines of the program's output that may be reports match; empty: none is."""
        if self.text is None:
            return _JSON
        if self.text in PRINTED:
            return r"(?i)\b(step|iter|iteration)\b"
        return self.pattern or ""

    def written(self, folder: Path, default: str) -> str:
        """Where a program reports that has not, and what is there instead."""
        text = self.text or default
        if not self._is_below_folder or text.endswith("/"):
            return text
        for file in filter(Path.is_file, sorted(folder.glob(text.removeprefix(f"{_FOLDER}/")))):
            with file.open("rb") as stream:
                begins = stream.readline(_FIRST_BYTES).decode("utf-8", "replace").strip()
            return f"{text}, which begins with {begins!r}, where a report has a step and numbers"
        return f"{text}, and there is no such file"

    @property
    def both_streams(self) -> bool:
        """Whether lines of standard error may be reports, as those of loggers are."""
        return self.text is not None

    def of_line(self, line: bytes) -> Report | None:
        """The report of a line of output, or of ``batchscale.report``.

        Raises:
            ExperimentError: as of ``Report.of``.
        """
        if report := Report.of_line(line):
            return report
        text = line.decode("utf-8", "replace")
        if self.pattern is not None:
            match = self._compiled.search(text)
            return _report(match.groupdict()) if match else None
        return _report(measured(text) or {}) if self.text in PRINTED else None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        assert self.text is not None
        try:
            re.compile(self.text.encode())  # as the guard finds the lines
            return re.compile(self.text)
        except re.error as error:
            raise ExperimentError(
                f"metrics {self.text!r} is no regular expression: {error}",
                hint=r"for example: 'step (?P<step>\d+) .* val_loss (?P<val_loss>\S+)'",
            ) from None

    def sources(self, reports: Path, folder: Path) -> list[Source]:
        """What a trial reports in.

        Args:
            reports: the file to which lines of its output and ``batchscale.report`` go.
            folder: of the trial.
        """
        said: list[Source] = [LinesOf(reports, self.of_line)]
        if self.text is None or self.printed:
            return said
        path = self.text.removeprefix(f"{_FOLDER}/")
        if self.text.endswith("/"):
            base = folder / path

            def events(file: Path) -> Source:
                return _Events(file, file.parent.relative_to(base).name)

            return [*said, _Files(folder, f"{path}**/*tfevents*", events)]
        if path.endswith(".csv"):
            return [*said, _Files(folder, path, _Rows)]
        return [*said, _Files(folder, path, lambda file: LinesOf(file, Report.of_line))]


class LinesOf:
    """A file of lines."""

    def __init__(self, path: Path, read: Callable[[bytes], Report | None]) -> None:
        self._lines, self._read = Followed(path), read

    def more(self, *, ended: bool = False) -> Iterator[Report]:
        yield from filter(None, map(self._read, self._lines.more(ended=ended)))


class _Rows:
    """A CSV file; one whose header changes is written anew, as Lightning does."""

    def __init__(self, path: Path) -> None:
        self._path, self._lines = path, Followed(path)
        self._header = b""

    def more(self, *, ended: bool = False) -> Iterator[Report]:
        try:
            with self._path.open("rb") as stream:
                first = stream.readline()
        except FileNotFoundError:
            return
        if not first.endswith(b"\n"):
            return
        if first.strip() != self._header:
            self._header, self._lines = first.strip(), Followed(self._path)
        names = _cells(self._header)
        # Lightning logs before it counts: after 138 updates the step is 137.
        add = 1 if self._path.name == _OF_LIGHTNING and "epoch" in names else 0
        for line in self._lines.more(ended=ended):
            if line.strip() not in (b"", self._header):
                row = dict(zip(names, _cells(line), strict=False))
                if report := _report(row, add=add):
                    yield report


class _Events:
    """An event file of TensorBoard."""

    def __init__(self, path: Path, within: str) -> None:
        self._path, self._within, self._read = path, within, 0

    def more(self, *, ended: bool = False) -> Iterator[Report]:
        del ended  # half a record is none
        with self._path.open("rb") as stream:
            stream.seek(self._read)
            data = stream.read()
        start = self._read
        for end, record in records(data):
            self._read = start + end
            try:
                said = row_of(self._path, record, self._within)
            except ResultsError as error:
                raise ExperimentError(str(error)) from error
            if report := _report(said):
                yield report


class _Files:
    """The files of a pattern, which the program need not have made yet."""

    def __init__(self, folder: Path, pattern: str, source: Callable[[Path], Source]) -> None:
        self._folder, self._pattern, self._source = folder, pattern, source
        self._known: dict[Path, Source] = {}

    def more(self, *, ended: bool = False) -> Iterator[Report]:
        for path in sorted(self._folder.glob(self._pattern)):
            if path not in self._known and path.is_file():
                self._known[path] = self._source(path)
        # By steps, so that what one file has beyond the budget hides nothing of another.
        more = chain.from_iterable(each.more(ended=ended) for each in self._known.values())
        yield from more if len(self._known) == 1 else sorted(more, key=attrgetter("step"))


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode("utf-8-sig", "replace").strip("\r\n")]), [])


def _report(said: Mapping[str, Any], *, add: int = 0) -> Report | None:
    """The report of cells that are text; those that are no numbers are left out."""
    cells = {
        name: number(cell.replace(",", "")) if isinstance(cell, str) else cell
        for name, cell in said.items()
    }
    known = {name: value for name, value in cells.items() if value is not None}
    step = known.get("step")
    return Report.of({**known, "step": step + add}) if isinstance(step, (int, float)) else None
