"""Errors that the user can correct: one line that names the thing and the place, and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from results.storage.masking import masked, without_variables

_LONGEST = 2_000
_ODD = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, line ends, marks of text direction, halves of UTF-16 pairs."""


class ClearError(Exception):
    """Something the user can correct. ``batchscale`` prints the message, then the hint.

    Each is one line that any terminal can show; keys in an address that they quote are masked.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(line(message))
        self.hint = hint and line(hint)


class ResultsError(ClearError):
    """An error of this package."""


class DatasetLostError(ResultsError):
    """The dataset that a sweep began with is not at its place any more."""


def nearest(
    name: str, names: Iterable[str], otherwise: str | None = None, *, form: str = "did you mean {}?"
) -> str | None:
    """A hint with the name in ``names`` most similar to ``name``; ``otherwise`` if none is
    similar."""
    close = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return form.format(close[0]) if close else otherwise


def is_utf8(text: str) -> bool:
    """Whether a file can hold ``text``: an argument that is not UTF-8 becomes half of a pair."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def escaped(text: str) -> str:
    """``text`` as one line that any terminal and any font shows: odd characters as ``\\x07``."""
    return _ODD.sub(lambda match: ascii(match[0])[1:-1], text)


def lines(text: str) -> str:
    """``text`` with each of its lines as one that any terminal shows; tabs are spaces."""
    return "\n".join(map(escaped, text.expandtabs().split("\n")))


def line(text: str) -> str:
    """``text`` as one line, safe to show: without keys, with odd characters escaped, and without
    its middle if a value makes it very long."""
    text = escaped(masked(without_variables(text)))
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"
