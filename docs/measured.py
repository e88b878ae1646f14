"""The page findings/techniques.md: tables and verdicts, each from one query.

``python docs/measured.py`` writes it from packaged data; a slow test compares the page with it.
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
from analysis.techniques.table import RATIOS, Table
from batchscale import answers
from results.reader import open as open_results
from validation.optimizers import FIRST, QUANTITIES, pooled_table

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "findings" / "techniques.md"
LIST = DOCS / "measured.yaml"
FIXED = ConfigDict(frozen=True, extra="forbid")

INTRODUCTION = """# What techniques change

This page compares [techniques](../techniques.md), optimizers and schedules with plain training, in
small models with early targets. `python docs/measured.py` writes it from the packaged data.

Each experiment changes one factor at a time. Every factor gets the same number of trials and one
tuned metaparameter. A table lists the techniques that differ from plain training, with ratios to it
and 90 % intervals. **Bold** ratios differ from 1, corrected for the false discovery rate: one in
ten of them may be a chance result. Where a curve is not level at an end, its critical batch size is
bounded, and the column has the ratio of the fewest examples to the fewest steps over the common
batch sizes. The pictures have all techniques, and the command of each table prints the notes that
limit its rows.
"""

VERDICTS = """## Published claims

Each cell has the ratio in our data, its 90 % interval and a verdict:

- *agrees*, *disagrees*: the ratio differs from 1 (corrected p at most 0.1), on the claim's side or
  on the other;
- *compatible*: the claim is that something does not change or grow, and the data do not contradict
  it; the interval says how large a change is possible;
- *not tested*: the technique acted before the target in less than half of the best trials;
- *undecided*: none of these.
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
    picture: bool = True
    """Or else the table has all techniques."""

    @property
    def data(self) -> Data:
        """Its trials."""
        where = f"experiment = '{self.experiment}'"
        return Data(name=self.experiment, where=where, correction="fdr")

    def text(self) -> Iterator[str]:
        """Table, the techniques that it leaves out, commands, picture."""
        yield f"## {self.title}\n\n{self.what}\n"
        rows = measured(self.data)
        yield f"| technique | {' | '.join(RATIOS.values())} |\n|{'---|' * (len(RATIOS) + 1)}"
        for row in rows:
            differs = any(map(_differs, row["ratios"].values()))
            if row["tested"] and (differs or not self.picture):
                ratios = (_cell(row["ratios"][name]) for name in RATIOS)
                yield f"| `{row['name']}` | {' | '.join(ratios)} |"
        yield ""
        yield from (f"- {line}." for line in others(rows))
        file = f"{self.experiment}.png"
        plot = f"batchscale plot techniques {self.data.options} -o {file}"
        if not self.picture:
            yield f"\n```sh\n{self.data.command}\n```\n"
            return
        yield f"\n```sh\n{self.data.command}\n{plot}\n```\n"
        yield f"![Ratios of each technique to plain training, with intervals](../img/{file})\n"


class Mean(BaseModel):
    """Experiments on several workloads: what each technique changes on average over them."""

    model_config = FIXED

    title: str
    what: str
    where: str

    def text(self) -> Iterator[str]:
        """A table, a row a technique, and the commands: of all ratios, and of the corrected p."""
        yield f"## {self.title}\n\n{self.what}\n"
        every = Data(name=self.title, where=self.where, quantities=(*QUANTITIES,))
        first = Data(name=self.title, where=self.where, quantities=(FIRST,))
        yield pooled_table("technique", table(every), table(first)).rstrip()
        yield f"\n```sh\n{every.command} --pool\n{first.command} --pool\n```\n"


class Claim(BaseModel):
    """A published claim, what it expects, and the data of ours that answer it."""

    model_config = FIXED

    title: str
    claim: str
    expected: tuple[Expected, ...]
    data: tuple[Data, ...]

    def text(self) -> Iterator[str]:
        """A table of verdicts, a row for each data set, and the commands."""
        yield f"### {self.title}\n\n{self.claim}\n"
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


def others(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Sentences on the rows that do not differ from plain training, on those that were not tested,
    and on how best trials repeat."""
    tested = [row for row in rows if row["tested"]]
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


def _names(names: Sequence[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


class Sections(BaseModel):
    """What measured.yaml lists."""

    model_config = FIXED

    screens: tuple[Screen, ...] = ()
    means: tuple[Mean, ...] = ()
    claims: tuple[Claim, ...] = ()


def listed(path: Path = LIST) -> Sections:
    """The sections of ``path``.

    Raises:
        ValidationError: a key that is missing, unknown, or of another type.
    """
    return Sections.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def page(sections: Sections) -> str:
    """The page's text."""
    parts = [INTRODUCTION, *(part for screen in sections.screens for part in screen.text())]
    parts += [part for mean in sections.means for part in mean.text()]
    parts += [VERDICTS, *(part for claim in sections.claims for part in claim.text())]
    return "\n".join(parts).strip("\n") + "\n"


def measured(data: Data) -> list[dict[str, Any]]:
    """The rows of the table of techniques."""
    return table(data).to_dicts()


def table(data: Data) -> Table:
    """The table of techniques itself."""
    query = Query(sources=(_opened(data.source),), where=data.where, baseline=data.baseline)
    quantities = data.quantities or None
    return answers.techniques(query, correction=data.correction, quantities=quantities)


_opened = cache(open_results)


if __name__ == "__main__":
    PAGE.write_text(page(listed()), encoding="utf-8")
    print(f"wrote {PAGE}")
