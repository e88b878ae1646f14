"""``python -m validation [PART …]``: simulate or compute parts, and renew what pages of
docs/findings have of them: truth.md, and the pages of growth, half-life, noise-scale, optimizers,
questions, rules and wrong-size."""

from __future__ import annotations

import argparse
import sys

from validation import (
    goldens,
    growth,
    half_life,
    noise_scale,
    optimizers,
    quadratic,
    questions,
    rules,
    wrong_size,
)
from validation.page import PAGE, renew
from validation.scenarios import BY_NAME

EXACT = {
    "exact": (quadratic.tables, PAGE),
    "goldens": (goldens.tables, PAGE),
    "growth": (growth.tables, growth.PAGE),
    "half-life": (half_life.tables, half_life.PAGE),
    "noise-scale": (noise_scale.tables, noise_scale.PAGE),
    "optimizers": (optimizers.tables, optimizers.PAGE),
    "questions": (questions.tables, questions.PAGE),
    "rules": (rules.tables, rules.PAGE),
    "wrong-size": (wrong_size.tables, wrong_size.PAGE),
}
"""Parts that are computed, not simulated, and their pages."""
PARTS = (*BY_NAME, *EXACT)


def main(arguments: list[str]) -> None:
    """Run the parts that are named, all of them if none is."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--processes", type=int, help="worker processes (default: one a core)")
    parser.add_argument("--replicates", type=int, help="of a block, in the place of the usual ones")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    for option in ("processes", "replicates"):
        value = getattr(given, option)
        if value is not None and value < 1:
            parser.error(f"--{option} {value} is below 1")
    for name in given.parts or PARTS:
        if name in EXACT:
            tables, page = EXACT[name]
            renew(tables(), page)
        else:
            page = PAGE
            BY_NAME[name].run(given.processes, given.replicates or 0)
        print(f"{name}: wrote {page}")


if __name__ == "__main__":
    main(sys.argv[1:])
