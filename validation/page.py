"""Pages of docs/ of which parts are made: truth, benchmarks, techniques, gallery.

What is made stands between ``<!-- made: NAME -->`` and ``<!-- end -->``; the text around it is
written by hand. It does not depend on the time or the machine, but for measured seconds: the same
command gives the same page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis import formatting
from analysis.fit.interval import QUANTITIES, Interval

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "findings" / "truth.md"

SHORT = {name: name.replace("_", " ").replace("min ", "least ") for name in QUANTITIES}
"""The five quantities as the tables of docs/findings/truth.md name them."""


def blocks(text: str) -> dict[str, str]:
    """What is made in a page, by name."""
    return dict(re.findall(r"<!-- made: (.+?) -->\n+(.*?)\n*<!-- end -->", text, flags=re.DOTALL))


def renew(new: Mapping[str, str], page: Path) -> None:
    """Put new parts in the place of those of their names; all else stays as it is.

    Raises:
        ValueError: the page has no part of that name.
    """
    before = text = page.read_text(encoding="utf-8")
    for name, made in new.items():
        head, mark, rest = text.partition(f"<!-- made: {name} -->\n")
        if not mark or "<!-- end -->" not in rest:
            raise ValueError(f"{page.name} has no place for {name!r}: <!-- made: {name} -->")
        _, end, tail = rest.partition("<!-- end -->")
        text = f"{head}{mark}\n{made.strip()}\n\n{end}{tail}"
    if text != before:  # others may be reading it
        page.write_text(text, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in per cent, or a dash of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "–"


def number(value: float) -> str:
    """A batch size, steps or examples; 0 is none."""
    if value == 0:
        return "none"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def short(value: float) -> str:
    """Three significant digits at most."""
    return f"{float(f'{value:.3g}'):,g}"


def interval(quantity: Interval) -> str:
    """``190 [150, 240]``, ``≥ 150``, ``≤ 240``, ``open``."""
    return formatting.interval(*quantity.ends, number=short)


def times(factor: float) -> str:
    """``1/4 ×``, ``1 ×``, ``8 ×``."""
    return f"{factor:g} ×" if factor >= 1 else f"1/{1 / factor:g} ×"


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
