"""Canonical JSON, and the ids that hash it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from experiments.errors import ExperimentError
from experiments.factors.target_share import TargetShare

_DIGITS = 20


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no spaces, floats in their shortest exact form.

    A whole float is written as the integer that it equals, so that ``1`` and ``1.0`` are the same
    value, as they are to every optimizer.

    Raises:
        ExperimentError: a number that is not finite, or what JSON has no form for.
    """
    return _ENCODER.encode(_plain(value))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, TargetShare):
        return str(value)
    if type(value) is float:
        if not math.isfinite(value):
            raise ExperimentError(f"{value} cannot be part of a trial's identity")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a number of numpy's
        return _plain(value.item())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _plain(float(value))
    raise ExperimentError(f"a {type(value).__name__} cannot be part of a trial's identity")


def digest(value: Any) -> str:
    """20 hexadecimal digits (80 bits) of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:_DIGITS]


class TrialIds:
    """Ids of the points of one study.

    An id is the ``digest`` of the study's description with the keys ``metaparameters`` and
    ``seed_index`` added; what all trials share is brought into canonical form once.
    """

    def __init__(self, study: Mapping[str, Any]) -> None:
        texts = {key: canonical(value) for key, value in study.items()}
        names = sorted([*texts, *_TRIAL_KEYS])
        pieces = ",".join(f"{canonical(n)}:{texts.get(n, _HOLE)}" for n in names)
        self._pieces = f"{{{pieces}}}".split(_HOLE)

    def id(self, point: str, seed_index: tuple[int, int]) -> str:
        """The id of a point, trained with one seed.

        Args:
            point: the metaparameters in canonical form.
            seed_index: the experiment's seed, and how many trials of the very same point there are
                before this one (0 wherever a metaparameter is continuous).
        """
        head, middle, tail = self._pieces
        text = f"{head}{point}{middle}{canonical(seed_index)}{tail}"
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


_TRIAL_KEYS = ("metaparameters", "seed_index")
_HOLE = "\0"
"""A character that canonical JSON never contains, since it is escaped."""
