"""The section "Measured" of techniques.md: sentences with intervals, each with its query.

``python docs/measured.py`` writes what it says of each claim of measured.yaml, from packaged data;
``--check`` says whether it is as it would be written.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from analysis.figure_data import Query
from analysis.fit.comparisons import ratio_text
from analysis.fit.interval import Interval
from analysis.techniques.table import RATIOS, p_text
from batchscale import answers
from batchscale.output.technique_table import techniques
from results.errors import ResultsError
from results.reader import open as open_results
from validation.page import blocks, renew

DOCS = Path(__file__).resolve().parent
LIST = DOCS / "measured.yaml"
PAGE = DOCS / "techniques.md"

_LEVEL = 0.1
"""Largest corrected p of what is called different."""


class Expected(BaseModel):
    """What a published claim says of a ratio; the keys are described in measured.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    says: str
    quantity: str
    side: Literal["above 1", "1", "not above 1"]
    rows: str = ""

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

    def sentence(self, rows: Sequence[dict[str, Any]]) -> str:
        """With each row's ratio, its interval and the verdict."""
        answers = []
        for row in rows:
            if row["name"].startswith(self.rows) and self.quantity in row["ratios"]:
                ratio = row["ratios"][self.quantity]
                interval = Interval(**{end: ratio[end] for end in ("value", "low", "high")})
                p = "" if ratio["p_corrected"] is None else f", p {p_text(ratio['p_corrected'])}"
                known = ratio_text(interval)
                answers.append(
                    f"{row['name']} {known}{p}: *{self.verdict(ratio, tested=row['tested'])}*"
                )
        if not answers:
            raise ValueError(f"no row begins with {self.rows!r}: {self.says}")
        expected = f"{RATIOS[self.quantity]}, expected {self.side}"
        return f"{self.says} ({expected}): {'; '.join(answers)}"


class Claim(BaseModel):
    """A published claim, and the query that answers it from ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    claim: str
    source: str
    where: str
    baseline: str | None = None
    quantities: tuple[str, ...] = ()
    screens: bool = False
    picture: str | None = None
    expected: tuple[Expected, ...] = ()


def claims(path: Path = LIST) -> list[Claim]:
    """Those of measured.yaml."""
    return [Claim(**item) for item in yaml.safe_load(path.read_text(encoding="utf-8"))]


def main(arguments: Sequence[str]) -> int:
    """Write the section, or check it; the exit status."""
    parser = argparse.ArgumentParser(prog="python docs/measured.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is as written")
    given = parser.parse_args(arguments)
    made = text(claims())
    if given.check:
        same = blocks(PAGE.read_text(encoding="utf-8"))["measured"] == made
        print("techniques.md is as it would be written" if same else "run it again")
        return int(not same)
    renew({"measured": made}, PAGE)
    print(f"wrote {PAGE}")
    return 0


def text(listed: Sequence[Claim]) -> str:
    """What is said of each claim."""
    return "\n".join(part for claim in listed for part in section(claim)).strip("\n")


def section(claim: Claim) -> Iterator[str]:
    """The claim, the sentences, and the command that makes them."""
    yield f"### {claim.title}\n\n{claim.claim}\n"
    answer = measured(claim)
    if answer is None:
        yield "Not measured: no packaged data answer this yet.\n"
        return
    rows, table = answer
    if claim.screens:
        yield table
    same: dict[str, list[str]] = {}
    for row in rows:
        if _NOTHING in row["sentence"]:
            same.setdefault(row["baseline"], []).append(row["name"])
        else:
            yield f"- {_sentence(row['sentence'])}"
    for baseline, names in same.items():
        yield f"- {_sentence(f'{_listed(names)} {_NOTHING} {baseline}')}"
    if claim.expected:
        yield "\nOf the claim:\n"
        yield from (f"- {each.sentence(rows)}." for each in claim.expected)
    yield f"\nCorrected for {rows[0]['compared']} ratios. What limits them:\n"
    yield from (f"- {_sentence(note)}" for note in limits(rows, together=claim.screens))
    where = shlex.quote(claim.where) if '"' in claim.where else f'"{claim.where}"'
    options = "" if claim.baseline is None else f" --baseline {claim.baseline}"
    options += "".join(f" --quantity {name}" for name in claim.quantities)
    options += " --correction fdr" if claim.screens else ""
    command = f"batchscale techniques {claim.source} --where {where}{options}"
    yield f"\n```sh\n{command}\n```\n"
    if claim.picture is not None:
        name = Path(claim.picture).name
        yield "The same as a figure, corrected by Dunnett's method, which is stricter:\n"
        yield f"```sh\nbatchscale plot techniques {claim.source} --where {where} -o {name}\n```\n"
        yield f"![Ratios of each technique to plain training, with intervals]({claim.picture})\n"


_NOTHING = "cannot be distinguished from"
_REPEATED = re.compile(r"\d+ (?:of the )?repeated runs are .*")
_AGAIN = re.compile(
    r".*trained again with fresh seeds.* takes (\S+) times its best trial's steps.*"
)


def limits(rows: Sequence[dict[str, Any]], *, together: bool = False) -> Iterator[str]:
    """Each note once, with the names of the rows that have it.

    ``together``: how the best trials of all curves repeat is one note, not one a row.
    """
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            if not _REPEATED.search(note):
                about.setdefault(note, []).append(row["name"])
    if together:
        again = {note: float(match[1]) for note in about if (match := _AGAIN.fullmatch(note))}
        for note in again:
            del about[note]
        if again:
            yield (
                "trained again with fresh seeds, the best configurations of the curves take "
                f"{min(again.values()):.2f} to {max(again.values()):.2f} times their best trials' "
                "steps (medians over batch sizes)"
            )
    for note, names in about.items():
        of_all = note.startswith("the baseline") or len(names) == len(rows) > 1
        yield note if of_all else f"{_listed(names)}: {note}"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def measured(claim: Claim) -> tuple[list[dict[str, Any]], str] | None:
    """The rows of the table, and the table; None where the packaged data have no such trial."""
    query = Query(sources=(_opened(claim.source),), where=claim.where, baseline=claim.baseline)
    try:
        table = answers.techniques(
            query,
            correction="fdr" if claim.screens else None,
            quantities=claim.quantities or None,
        )
    except ResultsError as error:
        if "no trial" in str(error):
            return None
        raise
    return table.to_dicts(), techniques(table, "markdown")


_opened = cache(open_results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
