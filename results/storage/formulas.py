"""CSV cells that a spreadsheet would run as a formula.

Excel, LibreOffice and Google Sheets run a cell that begins with ``=``, ``+``, ``-`` or ``@``, in
quotation marks too, and names in results may come from anybody. Such a text is written with an
apostrophe before it, as OWASP recommends ("CSV injection"); numbers are not text and stay as they
are. Reading a CSV file takes the apostrophe away again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from results.errors import escaped

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠]|[\t\r\n]")
"""Signs in full width count too: a spreadsheet in Japanese reads them. An apostrophe before them is
one that a text has already."""
_MARK = "'"
_ENDS = re.compile(r"([\n\t])")


def quoted(text: str) -> str:
    """``text`` as a cell that no spreadsheet runs; its lines end in \\n.

    A lone \\r would not be put in quotation marks, and what follows it would be a row. Other
    control characters are written as escapes (``\\x1b``): a CSV file is read on terminals too."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(part if part in "\n\t" else escaped(part) for part in _ENDS.split(text))
    return f"{_MARK}{text}" if _runs(text) else text


def unquoted(cell: str) -> str:
    """The text of which ``quoted`` made ``cell``."""
    return cell[1:] if cell.startswith(_MARK) and _runs(cell[1:]) else cell


def quoted_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts, and names of columns, no spreadsheet runs."""
    safe = frame.copy(deep=False)
    for place, (_, cells) in enumerate(frame.items()):  # two columns may have one name
        texts = cells.map(lambda cell: isinstance(cell, str) and quoted(cell) != cell)
        if texts.astype(bool).any():
            clean = cells.map(lambda cell: quoted(cell) if isinstance(cell, str) else cell)
            safe.isetitem(place, clean.array)
    return safe.set_axis([quoted(str(name)) for name in frame.columns], axis=1)


def _runs(text: str) -> bool:
    if _FORMULA.match(text) is None:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
