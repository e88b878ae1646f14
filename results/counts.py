"""Counts as text: ``1 trial``, ``2,304 trials``, ``2 studies are``."""

from __future__ import annotations

VERBS = {
    "are": "is", "belong": "belongs", "were": "was", "have": "has", "do": "does", "lie": "lies",
    "train": "trains", "count": "counts", "lack": "lacks",
}  # fmt: skip
"""Plural and singular of the verbs that messages use."""


def count(number: int, noun: str, verb: str = "") -> str:
    """``number`` with its noun, and a verb that agrees: ``count(1, "study", "were")`` is
    ``1 study was``.

    Args:
        noun: in the singular; the last word of it is inflected (``batch size``).
        verb: in the plural, one of ``VERBS``.
    """
    text = f"{number:,} {noun if number == 1 else plural(noun)}"
    return f"{text} {agreeing(number, verb)}" if verb else text


def agreeing(number: int, verb: str) -> str:
    """A verb, given in the plural, in agreement with a number: ``1 of 64 trials was``."""
    return VERBS[verb] if number == 1 else verb


def plural(noun: str) -> str:
    """``studies`` of ``study``, ``searches`` of ``search``; of more than one."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
