"""The section "Measured" of techniques.md: sentences with intervals, each with its query.

``python docs/measured.py`` writes it from packaged data; ``--check`` says whether it is as it would
be written.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from analysis.figure_data import Query
from analysis.fit.comparisons import ratio_text
from analysis.fit.interval import Interval
from analysis.techniques.table import RATIOS, p_text
from batchscale import answers
from batchscale.output.technique_table import techniques
from results.errors import ResultsError
from results.reader import open as open_results

PAGE = Path(__file__).resolve().parent / "techniques.md"
HEADING = "## Measured\n"

PLAIN = "technique LIKE '{_precision_:_float32_}'"
"""Without a technique; a pattern, since quotes within quotes are hard to read in a command."""

INTRODUCTION = """Made by `python docs/measured.py` from packaged data: each table and each sentence
is that of the command beneath it. Ratios are to the plain curve, with 90 % intervals; p is
corrected for all ratios of its section, by Dunnett's method (Holm's, where the curves are not of
one design with one baseline) or for the false discovery rate: a section on a published claim, which
was there before the data, has fewer of them, so that one ratio may have two. What cannot be
distinguished from 1 is called so; *open*: neither end of the interval is known. A curve whose ends
are not level has a bounded critical batch size: the column is then the ratio of the fewest examples
to the fewest steps of the batch sizes that both curves have, and a sentence calls it that.

Of each published claim it is said what ours say. *Agrees* and *disagrees*: the corrected p is at
most 0.1, on the claim's side of 1 or on the other. *Compatible*, of a claim that something does not
change or does not grow: ours do not contradict it, and the interval says how large a change they
leave possible. *Undecided*: neither. *Not tested*: in less than half of the best trials the
technique acted before the target was reached (`active`), so that the ratio is that of two searches
of nearly the same training; it is not corrected for.
"""

SCREENED = (
    "{what}, each against the plain one: one factor at a time, the same number of trials and one "
    "tuned metaparameter each. p is corrected for the false discovery rate: of the differences "
    "that are claimed, one in ten may be none."
)
"""Of an experiment that asks which of many techniques matter."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a published claim says of a ratio."""

    says: str
    """In words: the beginning of a sentence."""
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


_LEVEL = 0.1
"""Largest corrected p of what is called different."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A published claim, and the query that answers it from ours."""

    title: str
    claim: str
    source: str
    where: str
    baseline: str | None = None
    quantities: tuple[str, ...] = ()
    """Those that it is about; all unless given."""
    screens: bool = False
    """Whether it has the whole table, corrected for the false discovery rate."""
    picture: str | None = None
    """What ``plot techniques`` draws of it; it corrects by Dunnett's method."""
    expected: tuple[Expected, ...] = ()


MOMENTUM = (
    Expected(
        says="Momentum extends perfect scaling to larger batch sizes",
        quantity="critical_batch_size",
        side="above 1",
    ),
    Expected(
        says="It needs no more examples at small batch sizes",
        quantity="min_examples",
        side="not above 1",
    ),
)
SPARSITY = (
    Expected(
        says="The scaling trend stays, here: an equal critical batch size",
        quantity="critical_batch_size",
        side="1",
    ),
    Expected(says="Training is harder at large batch sizes", quantity="min_steps", side="above 1"),
    Expected(
        says="Training is harder at small batch sizes", quantity="min_examples", side="above 1"
    ),
)
AVERAGES = (
    Expected(
        says="An average of the weights extends the critical batch size",
        quantity="critical_batch_size",
        side="above 1",
        rows="ema",
    ),
    Expected(
        says="So do warmup and decay",
        quantity="critical_batch_size",
        side="above 1",
        rows="wsd",
    ),
)


def _screen(title: str, what: str, experiment: str) -> Claim:
    return Claim(
        title=title,
        claim=SCREENED.format(what=what),
        source="own",
        where=f"experiment = '{experiment}'",
        screens=True,
        picture=f"img/{experiment}.png",
    )


SWEPT = (
    ("digits", "techniques-digits", "sgd"),
    ("MNIST", "techniques-mnist", "sgd"),
    ("text", "techniques-text", "adamw"),
)
"""The packaged sweeps of techniques: the data, the experiment, and the plain optimizer."""

CLAIMS = (
    _screen(
        "Techniques on digits",
        "Techniques and optimizers on scikit-learn's digits, a network of 4,810 parameters",
        "techniques-digits",
    ),
    _screen(
        "Techniques on MNIST",
        "Techniques and optimizers on a tenth of MNIST, a network of 50,890 parameters",
        "techniques-mnist",
    ),
    _screen(
        "Techniques on text",
        "Techniques and optimizers on the sources of Python's standard library as bytes, a "
        "Transformer of about 28,000 parameters",
        "techniques-text",
    ),
    _screen(
        "Weights that were trained before, on digits",
        "Fine-tuning in three forms and distillation, from a network that knows MNIST at 8×8 "
        "pixels, on scikit-learn's digits",
        "techniques-transfer",
    ),
    _screen(
        "Pruning and quantization on digits",
        "Forms of pruning and quantization on scikit-learn's digits, a network of 4,810 parameters",
        "techniques-compression",
    ),
    Claim(
        title="Optimizers on digits",
        claim="No claim of others: SGD, momentum and Adam, each tuned by 64 trials at each batch "
        "size.",
        source="own",
        where="experiment = 'digits'",
    ),
    Claim(
        title="Momentum × batch size",
        claim="Shallue et al. 2019 (arXiv:1811.03600): momentum extends perfect scaling to larger "
        "batch sizes, and needs no more examples at small ones. Their published curves, whose "
        "momentum was tuned:",
        source="published",
        where="workload = 'mnist-simple-cnn' AND source = 'shallue_2019_digitized'",
        baseline="sgd",
        expected=MOMENTUM,
    ),
    *(
        Claim(
            title=f"Momentum 0.9 and 0.99, on {data}",
            claim=f"The same claim at fixed momenta: `{experiment}` has 0 (sgd), 0.9 and 0.99.",
            source="own",
            where=f"experiment = '{experiment}' AND schedule = 'constant' "
            f"AND optimizer IN ('sgd', 'momentum', 'momentum-99') AND {PLAIN}",
            expected=MOMENTUM,
        )
        for data, experiment in (("digits", "techniques-digits"), ("MNIST", "techniques-mnist"))
    ),
    *(
        Claim(
            title=f"Sparsity × batch size, on {data}",
            claim="Lee et al. 2021 (arXiv:2003.11316): pruned networks have the same scaling "
            "trend, and training them is harder: it takes more steps. `prune` removes the smallest "
            "weights before training.",
            source="own",
            where=f"experiment = '{experiment}' AND optimizer = '{optimizer}' "
            f"AND schedule = 'constant' AND (technique LIKE '%prune%' OR {PLAIN})",
            quantities=("critical_batch_size", "min_steps", "min_examples"),
            expected=SPARSITY,
        )
        for data, experiment, optimizer in SWEPT
    ),
    Claim(
        title="Sparsity × batch size, pruned in other ways, on digits",
        claim="The same claim, for weights pruned by their gradient (SNIP, as Lee et al. do), at "
        "random, by units, and gradually (`until`).",
        source="own",
        where=f"experiment = 'techniques-compression' AND (technique LIKE '%prune%' OR {PLAIN})",
        quantities=("critical_batch_size", "min_steps", "min_examples"),
        expected=SPARSITY,
    ),
    *(
        Claim(
            title=f"EMA and warmup, on {data}",
            claim="Zhang et al. 2024 (arXiv:2410.21676): an average of the weights at a constant "
            "rate does what a decay does, and extends the critical batch size; warmup matters at "
            "large batch sizes. Theirs are language models of 85 million parameters and more, in "
            "long runs. Ours are small, their targets are reached early, and the decay of an "
            "average is the same at all batch sizes. `wsd` has warmup and decay: nothing is "
            "measured of warmup alone.",
            source="own",
            where=f"experiment = '{experiment}' AND optimizer = '{optimizer}' "
            f"AND (technique LIKE '%ema%' OR {PLAIN})",
            quantities=("critical_batch_size",),
            expected=AVERAGES,
        )
        for data, experiment, optimizer in SWEPT
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Write the section, or check it; the exit status."""
    parser = argparse.ArgumentParser(prog="python docs/measured.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is as written")
    given = parser.parse_args(arguments)
    before = PAGE.read_text(encoding="utf-8")
    after = renewed(before)
    if given.check:
        print("techniques.md is as it would be written" if before == after else "run it again")
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def renewed(page: str, claims: Sequence[Claim] = CLAIMS) -> str:
    """``page`` with the section in the place of the old one, or at its end."""
    head, _, rest = page.partition(HEADING)
    _, follows, tail = rest.partition("\n## ")
    parts = [INTRODUCTION, *(part for claim in claims for part in section(claim))]
    text = "\n".join(parts).strip("\n")
    return f"{head.rstrip()}\n\n{HEADING}\n{text}\n" + (f"\n## {tail}" if follows else "")


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
