"""Display names of optimizers: the class of a user's file, not the file."""

from __future__ import annotations


def class_name(text: str) -> str:
    """``Lion`` of ``my_opt.py:Lion``; any other name as it is."""
    file, _, name = text.rpartition(":")
    return name if name and file.endswith(".py") else text
