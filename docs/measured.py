"""The section "Measured" of techniques.md: tables and verdicts, each from one query.

``python docs/measured.py`` writes it from packaged data; a slow test holds the page to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from analysis.figure_data import Query
from analysis.fit.comparisons import ratio_text
from analysis.fit.interval import Interval
from analysis.techniques.table import RATIOS
from batchscale import answers
from results.reader import open as open_results

PAGE = Path(__file__).resolve().parent / "techniques.md"
LIST = PAGE.with_name("measured.yaml")
HEADING = "## Measured\n"
FIXED = ConfigDict(frozen=True, extra="forbid")

INTRODUCTION = """`python docs/measured.py` writes this section from packaged data.

Each experiment changes one factor at a time, with the same number of trials and one tuned
metaparameter each. A table has the ratios to plain training, with 90 % intervals, of the techniques
that differ from it: in **bold** the ratios that differ from 1 (corrected for the false discovery
rate: of these, one in ten may be a chance result). If a curve is not level at an end, its critical
batch size is bounded, and the column has the ratio of the fewest examples to the fewest steps over
the common batch sizes. Pictures have all techniques. The notes that a command prints say what
limits each row. These models are small and their targets early.
"""

VERDICTS = """### Published claims

Each cell has the ratio in our data, its 90 % interval and a verdict. *Agrees*, *disagrees*: the
ratio differs from 1 (corrected p at most 0.1), on the claim's side or on the other. *Compatible*:
the data do not contradict a claim that something does not change or grow; the interval says how
large a change is possible. *Undecided*: neither. *Not tested*: the technique acted before the
target in less than half of the best trials.
"""


class Expected(BaseModel):
    """What a published claim says of a ratio."""

    model_config = FIXED

    says: str
    quantity: str
    side: Literal["above 1", "1", "not above 1"]
    rows: str = ""
    """How the names of the rows begin that it is about."""

    def verdict(self, ratio: dict[str, float | None], *, tested: bool = True) -> str:
        """What a measured ratio says of it (``analysis.techniques.table.Ratio``)."""
        if not tested:
            return "not tested"
        low, high, p = ratio["low"], ratio["high"], ratio["p_corrected"]
        above, below = low is not None and low > 1, high is not None and high < 1
        if p is not None and p <= _LEVEL and (above or below):
            holds = {"above 1": above, "1": False, "not above 1": below}[self.side]
            return "agrees" if holds else "disagrees"
        if self.side == "above 1" or high is None or above:
            return "undecided"
        return "undecided" if self.side == "1" and (low is None or below) else "compatible"

    def answers(self, rows: Sequence[dict[str, Any]]) -> str:
        """Each row's ratio with its interval and the verdict."""
        texts = []
        for row in rows:
            if row["name"].startswith(self.rows) and self.quantity in row["ratios"]:
                ratio = row["ratios"][self.quantity]
                verdict = self.verdict(ratio, tested=row["tested"])
                texts.append(f"`{row['name']}` {_ratio(ratio)}, *{verdict}*")
        if not texts:
            raise ValueError(f"no row begins with {self.rows!r}: {self.says}")
        return "; ".join(texts)


_LEVEL = 0.1


class Data(BaseModel):
    """A query: the trials of one experiment, and what they are called."""

    model_config = FIXED

    name: str
    where: str
    source: str = "own"
    baseline: str | None = None
    quantities: tuple[str, ...] = ()
    correction: str | None = None

    @property
    def options(self) -> str:
        """Of the command: the source, and which of its trials."""
        where = shlex.quote(self.where) if '"' in self.where else f'"{self.where}"'
        return f"{self.source} --where {where}"

    @property
    def command(self) -> str:
        """What prints the same numbers, with their notes."""
        options = "" if self.baseline is None else f" --baseline {self.baseline}"
        options += "".join(f" --quantity {name}" for name in self.quantities)
        options += "" if self.correction is None else f" --correction {self.correction}"
        return f"batchscale techniques {self.options}{options}"


class Screen(BaseModel):
    """An experiment that asks which of many techniques matter: its table and its picture."""

    model_config = FIXED

    title: str
    what: str
    experiment: str

    @property
    def data(self) -> Data:
        """Its trials."""
        where = f"experiment = '{self.experiment}'"
        return Data(name=self.experiment, where=where, correction="fdr")

    def text(self) -> Iterator[str]:
        """Table, findings, commands, picture."""
        yield f"### {self.title}\n\n{self.what}\n"
        rows = measured(self.data)
        yield f"| technique | {' | '.join(RATIOS.values())} |\n|{'---|' * (len(RATIOS) + 1)}"
        for row in rows:
            if row["tested"] and any(map(_differs, row["ratios"].values())):
                ratios = (_cell(row["ratios"][name]) for name in RATIOS)
                yield f"| `{row['name']}` | {' | '.join(ratios)} |"
        yield ""
        yield from (f"- {finding}." for finding in findings(rows))
        file = f"{self.experiment}.png"
        plot = f"batchscale plot techniques {self.data.options} -o {file}"
        yield f"\n```sh\n{self.data.command}\n{plot}\n```\n"
        yield f"![Ratios of each technique to plain training, with intervals](img/{file})\n"


class Claim(BaseModel):
    """A published claim, what it expects, and the data of ours that answer it."""

    model_config = FIXED

    title: str
    claim: str
    expected: tuple[Expected, ...]
    data: tuple[Data, ...]

    def text(self) -> Iterator[str]:
        """A table of verdicts, a row for each data set, and the commands."""
        yield f"#### {self.title}\n\n{self.claim}\n"
        heads = (f"{e.says} ({RATIOS[e.quantity]}: {e.side})" for e in self.expected)
        yield f"| data | {' | '.join(heads)} |\n|{'---|' * (len(self.expected) + 1)}"
        for data in self.data:
            rows = measured(data)
            cells = (each.answers(rows) for each in self.expected)
            yield f"| {data.name} | {' | '.join(cells)} |"
        commands = "\n".join(data.command for data in self.data)
        yield f"\n```sh\n{commands}\n```\n"


def _ratio(ratio: dict[str, float | None]) -> str:
    return ratio_text(Interval(**{end: ratio[end] for end in ("value", "low", "high")}))


def _differs(ratio: dict[str, float | None]) -> bool:
    p = ratio["p_corrected"]
    return p is not None and p <= _LEVEL


def _cell(ratio: dict[str, float | None]) -> str:
    return f"**{_ratio(ratio)}**" if _differs(ratio) else _ratio(ratio)


def findings(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each quantity in which rows differ from plain training, for the rows that do
    not, for those that were not tested, and for how best trials repeat."""
    tested = [row for row in rows if row["tested"]]
    for quantity, (label, above, below) in _SAYS.items():
        sides: dict[str, list[str]] = {}
        for row in tested:
            ratio = row["ratios"][quantity]
            if _differs(ratio):
                side = above if (ratio["low"] or 0) > 1 else below
                sides.setdefault(side, []).append(row["name"])
        if sides:
            texts = (f"{side} with {_names(names)}" for side, names in sides.items())
            yield f"**{label}**: {'; '.join(texts)}"
    alike = [row for row in tested if not any(map(_differs, row["ratios"].values()))]
    known = [row["name"] for row in alike if row["ratios"]["min_steps"]["value"] is not None]
    unknown = [row["name"] for row in alike if row["name"] not in known]
    late = [row["name"] for row in rows if not row["tested"]]
    for label, names in (
        ("Cannot be distinguished from plain training", known),
        ("Unknown", unknown),
        ("Not tested, because they began after the target", late),
    ):
        if names:
            yield f"**{label}**: {_names(names)}"
    notes = (note.values.get("note", note) for row in rows for note in row["notes"])
    again = [note.values["times"] for note in notes if note.code == "trained_again"]
    if again:
        yield (
            "**Repeats**: trained again with fresh seeds, the best configurations take "
            f"{min(again):.2f} to {max(again):.2f} times their best trials' steps"
        )


_SAYS = {
    "critical_batch_size": ("Critical batch size", "larger", "smaller"),
    "perfect_scaling_until": ("End of perfect scaling", "larger", "smaller"),
    "min_steps": ("Steps at large batch sizes", "more", "fewer"),
    "min_examples": ("Steps at small batch sizes", "more", "fewer"),
}


def _names(names: Sequence[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


class Sections(BaseModel):
    """What measured.yaml lists."""

    model_config = FIXED

    screens: tuple[Screen, ...] = ()
    claims: tuple[Claim, ...] = ()


def listed(path: Path = LIST) -> Sections:
    """The sections of ``path``.

    Raises:
        ValidationError: a key that is missing, unknown, or of another type.
    """
    return Sections.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def renewed(page: str, sections: Sections) -> str:
    """``page`` with the section in the place of the old one, or at its end."""
    head, _, rest = page.partition(HEADING)
    _, follows, tail = rest.partition("\n## ")
    parts = [INTRODUCTION, *(part for screen in sections.screens for part in screen.text())]
    parts += [VERDICTS, *(part for claim in sections.claims for part in claim.text())]
    text = "\n".join(parts).strip("\n")
    return f"{head.rstrip()}\n\n{HEADING}\n{text}\n" + (f"\n## {tail}" if follows else "")


def measured(data: Data) -> list[dict[str, Any]]:
    """The rows of the table of techniques."""
    query = Query(sources=(_opened(data.source),), where=data.where, baseline=data.baseline)
    quantities = data.quantities or None
    return answers.techniques(query, correction=data.correction, quantities=quantities).to_dicts()


_opened = cache(open_results)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), listed()), encoding="utf-8")
    print(f"wrote {PAGE}")
