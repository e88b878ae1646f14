"""The section "Measured" of techniques.md: sentences with intervals, each with its query.

``python docs/measured.py`` writes it from packaged data; ``--check`` says whether it is as it would
be written.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import batchscale
from results.errors import ResultsError

PAGE = Path(__file__).resolve().parent / "techniques.md"
HEADING = "## Measured\n"

PLAIN = """technique = '{"precision":"float32"}'"""

INTRODUCTION = """Made by `python docs/measured.py` from packaged data: each sentence is that of the
command beneath it. Ratios are to the plain curve, with 90 % intervals; p is corrected by Holm's
method for all ratios of its table. What cannot be distinguished from 1 is called so.
"""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A published claim, and the query that answers it from ours."""

    title: str
    claim: str
    source: str
    where: str
    baseline: str | None = None


CLAIMS = (
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
        "batch sizes, and needs no more examples at small ones. Their published curves:",
        source="published",
        where="workload = 'mnist-simple-cnn' AND source = 'shallue_2019_digitized'",
        baseline="sgd",
    ),
    Claim(
        title="Momentum 0.9 and 0.99",
        claim="The same claim at fixed momenta: `techniques-digits` has 0 (sgd), 0.9 and 0.99.",
        source="own",
        where="experiment = 'techniques-digits' AND schedule = 'constant' "
        f"AND optimizer IN ('sgd', 'momentum', 'momentum-99') AND {PLAIN}",
    ),
    Claim(
        title="Sparsity × batch size",
        claim="Lee et al. 2021 (arXiv:2003.11316): pruned networks have the same scaling trend, "
        "and training them is harder: the plateau has more steps. Ours agree if the ratio "
        "of critical batch sizes of `prune` holds 1 and that of the steps at the plateau lies "
        "above 1.",
        source="own",
        where="experiment = 'techniques-digits' AND optimizer = 'sgd' AND schedule = 'constant' "
        f"AND (technique LIKE '%prune%' OR {PLAIN})",
    ),
    Claim(
        title="EMA and warmup",
        claim="Zhang et al. 2024 (arXiv:2410.21676): an average of the weights at a constant rate "
        "does what a decay does, and extends the critical batch size; warmup matters at large "
        "batch sizes. Ours agree if the ratio of critical batch sizes of `ema` lies above 1.",
        source="own",
        where="experiment = 'techniques-text' AND optimizer = 'adamw' "
        f"AND (technique LIKE '%ema%' OR {PLAIN})",
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
    rows = measured(claim)
    if not rows:
        yield "Not measured: no packaged data answer this yet.\n"
        return
    for row in rows:
        sentence = row["sentence"]
        yield f"- {sentence[0].upper()}{sentence[1:]}."
    limits = dict.fromkeys(
        note if note.startswith("the baseline") else f"{row['name']}: {note}"
        for row in rows
        for note in row["notes"]
    )
    compared = rows[0]["compared"]
    yield f"\nCorrected for {compared} ratios. What limits them:\n"
    yield from (f"- {note[0].upper()}{note[1:]}." for note in limits)
    where = shlex.quote(claim.where) if '"' in claim.where else f'"{claim.where}"'
    baseline = "" if claim.baseline is None else f" --baseline {claim.baseline}"
    command = f"batchscale techniques {claim.source} --where {where}{baseline}"
    yield f"\n```sh\n{command}\n```\n"


def measured(claim: Claim) -> list[dict[str, Any]]:
    """The rows of the table; none where the packaged data have no such trial."""
    try:
        return opened(claim.source).techniques(where=claim.where, baseline=claim.baseline)
    except ResultsError as error:
        if "no trial" in str(error):
            return []
        raise


@cache
def opened(source: str) -> batchscale.Run:
    return batchscale.open(source)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
