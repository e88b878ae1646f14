"""The page docs/truth.md: a section a part, each from the counts that the part left in docs/truth/.

It does not depend on the time or the machine: the same command gives the same page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis.fit.interval import QUANTITIES

PAGE = Path(__file__).parent.parent / "docs" / "truth.md"

HEAD = """# Can the numbers be trusted?

Made by `make truth`, or part by part by `python -m validation PART`: every curve here has a
known answer, is analysed as a measured one, and is held against that answer.
[regimes.md](regimes.md) says what is estimated and how. Seeds are fixed, so the command gives the
same page again; the counts behind the tables are in `docs/truth/`, a row a block of curves.

Intervals are 90 % intervals at the tolerance 0.2, and open ends count as infinite. Noise is the
standard deviation of log steps about the true curve, search luck and seeds together; repeats are
runs at each batch size.
"""

SHORT = {name: name.replace("_", " ").replace("min ", "least ") for name in QUANTITIES}
"""The five quantities as the page's tables name them."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def paragraphs(*parts: str) -> str:
    """Tables and paragraphs, a line between each."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in per cent, or a dash of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "–"


def number(value: float) -> str:
    """A batch size, steps or examples; 0 is none."""
    if value == 0:
        return "none"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def counts(name: str) -> Path:
    """The file of a part's counts."""
    return PAGE.parent / "truth" / f"{name}.csv"


def keep(name: str, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Write the counts of a part, and give them back as they read."""
    path = counts(name)
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")
    return kept(name)


def kept(name: str) -> pd.DataFrame:
    """The counts of a part as they were last kept."""
    return pd.read_csv(counts(name), keep_default_na=False, na_values=[""])


def sections(text: str) -> dict[str, str]:
    """The page's sections by name, without their headings."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def write(order: Sequence[str], new: Mapping[str, str], page: Path = PAGE) -> None:
    """Put ``new`` sections in the place of the old ones, in ``order``; others stay as they are."""
    before = sections(page.read_text(encoding="utf-8")) if page.exists() else {}
    merged = {**before, **new}
    parts = [f"## {name}\n\n{merged[name].strip()}\n" for name in order if name in merged]
    page.write_text("\n".join([HEAD, *parts]), encoding="utf-8")
