"""The content of a claim's file, read strictly: anybody who can write into the folder may have
written it.

What is not a claim (other types, a missing key, a number out of range, a file that is huge or
nested deeply) counts as no claim.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from results.storage.names import is_plain

LARGEST_BYTES = 16 * 2**20
"""Largest bytes of a claim's file. A trial takes about a hundred."""

_LONGEST = 500


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


Line = Annotated[str, Field(max_length=_LONGEST), AfterValidator(_printable)]
"""Text that is safe on a terminal."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
# A metric that is not finite is dropped: it cannot be compared, and JSON does not have it.
Metric = Annotated[
    float | None,
    AfterValidator(lambda value: value if value is None or math.isfinite(value) else None),
]
Scalar = str | int | float | bool | None


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Process(_Strict):
    machine: Line
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    start: Count | None
    role: Line | None = None


class _Info(_Strict):
    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Scalar]
    experiment: Line | None = None
    study: Line | None = None


class _Claim(_Strict):
    pack: Line
    trials: list[str]
    token: Line
    holder: _Process
    processes: list[_Process]
    info: _Info
    progress: dict[str, tuple[Count, Metric]]
    time: FiniteFloat


def parse(pack: str, data: bytes) -> dict[str, Any] | None:
    """The content of the claim file of ``pack``; ``None`` if it is not a claim of that pack.

    The keys are those of ``results.run_state.claims.Claims.all``.
    """
    if len(data) > LARGEST_BYTES:
        return None
    try:
        read = _Claim.model_validate_json(data)
    except ValidationError:
        return None
    if read.pack != pack or not is_plain(pack):
        return None
    content = read.model_dump(exclude_unset=True)
    content["progress"] = {trial: list(state) for trial, state in read.progress.items()}
    return content
