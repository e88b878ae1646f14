"""Names that are too long for their place: on a second line, or without their middle
(``image_cla…_of_all_parts``).

They are measured in the type in force before they are laid out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

MISSING = "…"
_BREAKS = re.compile(rf"(?<=[\s_,/-])(?![\s,·{MISSING}])|(?<={MISSING})")
_PARTS = re.compile(r"(?<= · )|(?<=, )")
"""Places at which a name of several parts is broken first."""
_HINTED = 1.04
"""Factor by which a line may be wider in pixels than its letters."""

Fits = Callable[[str], bool]


def shortened(text: str, letters: int) -> str:
    """``text`` without its middle if it has more ``letters``."""
    if len(text) <= letters:
        return text
    kept = max(letters - len(MISSING), 2)
    return text[: -(-kept // 2)] + MISSING + text[len(text) - kept // 2 :]


def fitted(text: str, fits: Fits, lines: int = 1) -> str:
    """As much of ``text`` as fits on at most so many ``lines``; ``fits`` judges a line."""
    whole = text if fits(text) else _broken(text.replace("\n", " "), fits, lines)
    if whole is not None:
        return whole
    text = text.replace("\n", " ")
    low, high = 3, len(text)
    best = shortened(text, low)
    while low <= high:
        letters = (low + high) // 2
        broken = _broken(shortened(text, letters), fits, lines)
        if broken is None:
            high = letters - 1
        else:
            best, low = broken, letters + 1
    return best


def distinct(texts: Sequence[str], fits: Fits, lines: int = 1) -> list[str]:
    """Each of ``texts`` as it fits; those that differ still differ.

    Where names differ in the middle alone, what they have in common at their ends is cut first.
    """
    short = {text: fitted(text, fits, lines) for text in texts}
    if len(set(short.values())) < len(short):
        differences = _without_common(list(short))
        short = {text: fitted(rest, fits, lines) for text, rest in differences.items()}
        if len(set(short.values())) < len(short):
            numbered = enumerate(differences.items(), 1)
            short = {text: fitted(f"{i} {rest}", fits, lines) for i, (text, rest) in numbered}
    return [short[text] for text in texts]


def no_snake_case(text: str) -> str:
    """``text`` without snake case: ``validation error``."""
    return text.replace("_", " ")


def inches_of(text: str, size: str | float = "medium") -> float:
    """The width of the longest line of a text, in type of a ``size`` of matplotlib's."""
    font = FontProperties(size=size)

    def points(line: str) -> float:
        return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])

    return max(map(points, text.split("\n"))) / 72 * _HINTED


def within(inches: float, size: str | float = "medium") -> Fits:
    """Whether the lines of a text are at most so wide."""
    return lambda text: inches_of(text, size) <= inches


def _broken(text: str, fits: Fits, most: int) -> str | None:
    """``text`` broken into at most ``most`` lines that fit; None where that is impossible."""
    if fits(text):
        return text
    parts = _PARTS.split(text)
    halves = [("".join(parts[:i]), "".join(parts[i:])) for i in range(1, len(parts))]
    for first, last in sorted(halves, key=lambda pair: abs(len(pair[0]) - len(pair[1]))):
        if most > 1 and fits(first.rstrip(" ·")) and fits(last):
            return f"{first.rstrip(' ·')}\n{last}"
    lines = [""]
    for part in _BREAKS.split(text):
        if fits((lines[-1] + part).rstrip()):
            lines[-1] += part
        elif fits(part.rstrip()):
            lines.append(part)
        else:
            return None
    return "\n".join(line.rstrip() for line in lines) if len(lines) <= most else None


def _without_common(texts: Sequence[str]) -> dict[str, str]:
    """Each text without the beginning and the end that all of them share."""
    begin = _shared_letters(texts)
    end = _shared_letters([text[begin:][::-1] for text in texts])
    head, tail = MISSING if begin else "", MISSING if end else ""
    return {text: head + text[begin : len(text) - end] + tail for text in texts}


def _shared_letters(texts: Sequence[str]) -> int:
    """How many letters all of them begin with."""
    unlike = (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    return next(unlike, min(map(len, texts)))
