"""What failed trials say of themselves, for people, and the command that repeats a trial."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from results.counts import count
from results.errors import line

if TYPE_CHECKING:
    import pandas as pd

_MOST = 3
"""Most errors that are named."""


def failures(trials: pd.DataFrame) -> list[str]:
    """``4 trials failed at batch size 64: RuntimeError: …``: one for each error of ``trials``, the
    most frequent first; without the traceback, whose last line it is."""
    failed = trials[trials["stop_reason"].eq("error")]
    if failed.empty:
        return []
    lines = failed.reindex(columns=["error"])["error"].map(last_line)
    sentences = []
    for text in lines.value_counts().index[:_MOST]:
        sizes = sorted({int(size) for size in failed.loc[lines.eq(text), "batch_size"].dropna()})
        noun = "batch size" if len(sizes) == 1 else "batch sizes"
        where = f" at {noun} {', '.join(map(str, sizes))}" if sizes else ""
        sentences.append(f"{count(int(lines.eq(text).sum()), 'trial')} failed{where}: {text}")
    if lines.nunique() > _MOST:
        sentences[-1] += f" (and {count(lines.nunique() - _MOST, 'more error')})"
    return sentences


def last_line(error: object) -> str:
    """The line of a recorded error that says what it is, without its traceback."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    return line(lines[-1]) if isinstance(error, str) and lines else "no error is recorded"


def repeat_command(trial: str, root: str) -> str:
    """The shell command that trains a trial of the folder or URI ``root`` again, as it was."""
    return shlex.join(["batchscale", "trial", "--from", trial, "--results", root])
