"""The page docs/benchmarks.md: a section a part, each from one run of that part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Made by `make bench`, or part by part by `python -m benchmarks PART`; a section is one run on one
machine, and every ratio in it is of two things timed in turn in that run, its range in brackets.
Machines are noisy: read ratios before seconds. *At most … by its arithmetic* is what a ratio would
be if the step took no longer than its matrix products at this machine's best rate, or than reading
and writing its weights at that of memory, whichever is longer; *by its products*: no longer than
torch's products, convolutions and attention take in it. What needs a GPU is measured where there is
one, by `python -m benchmarks.gpu`; `python -m benchmarks merge gpu.json` puts its results here.

On 2026-11-26 an NVIDIA H200 (torch 2.11) was lent for a quarter of an hour. Recorded steps equal
eager ones to 1e-16 in float64. Recording makes a step 9.0 times as fast for a stack of 64 digits
MLPs, 1.8 times for one of 1,024, 2.5 times for one of 32 ResNet-8 at batch size 64, and 16.5 and
3.3 times for a single model of either kind: it stays. ResNet-8 in bfloat16 trained 0.245 M
images/s in a stack (18.6 times a bare eager loop of its models), in float32 0.137 M images/s one
model at a time at batch size 4,096; the 0.8 M that were wanted are not reached. The tables of
that run are lost, so that the section gpu still says that nothing was measured.
"""


def table(rows: Sequence[dict[str, object]]) -> str:
    """A Markdown table."""
    lines = ["| what | measured | wanted |", "|---|---|---|"]
    lines += [f"| {row['what']} | {row['measured']} | {row['wanted']} |" for row in rows]
    return "\n".join(lines) + "\n"


def sections(text: str) -> dict[str, str]:
    """The page's sections by name, without their headings."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def write(order: Sequence[str], new: dict[str, str], page: Path = PAGE) -> None:
    """Put ``new`` sections in the place of the old ones, in ``order``; others stay as they are."""
    before = sections(page.read_text()) if page.exists() else {}
    merged = {**before, **new}
    parts = [f"## {name}\n\n{merged[name]}\n" for name in order if name in merged]
    page.write_text("\n".join([HEAD, *parts]))
