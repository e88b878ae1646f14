"""Values of an experiment file by their types: what pydantic says of a wrong one, in a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)

from experiments.errors import ExperimentError, nearest


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,)


_LARGEST = 2**63 - 1
Whole = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=1, le=_LARGEST)]
Number = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=0, le=_LARGEST)]
Texts = Annotated[tuple[StrictStr, ...], BeforeValidator(_as_tuple)]


class Keys(BaseModel):
    """A mapping of the file with its keys and their types; it has no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


K = TypeVar("K", bound=Keys)


def checked(
    kind: type[K],
    value: Any,
    hints: Mapping[str, str],
    unknown: Callable[[str], str | None] | None = None,
) -> K:
    """The keys of ``value``, each checked.

    Args:
        hints: for errors, by key.
        unknown: gives the hint for a key that there is not; the nearest one unless given.

    Raises:
        ExperimentError: the first thing that is wrong; an unknown key before a missing one, since
            it may be its misspelling.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        errors = error.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    at = first["loc"]
    key = next((part for part in reversed(at) if isinstance(part, str)), "")
    if first["type"] == "extra_forbidden":
        keys = [field.alias or name for name, field in kind.model_fields.items()]
        hint = unknown(key) if unknown else nearest(key, keys)
        raise ExperimentError(f"unknown key {key!r}", hint=hint, at=at)
    if first["type"] == "missing":
        raise ExperimentError(f"no key {key!r}", hint=hints.get(key), at=at[:-1])
    raise ExperimentError(f"{key} {_reason(first)}".lstrip(), hint=hints.get(key), at=at)


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
    "list": "a list",
    "finite": "a finite number",
}


def _reason(error: Any) -> str:
    context, value = error.get("ctx", {}), error["input"]
    match error["type"]:
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {value!r}"
        case "less_than_equal":  # the value may have hundreds of digits
            short = repr(value) if abs(value) < 1e30 else f"{float(value):g}"
            return f"must be at most {context['le']:,}, not {short}"
        case "too_short":
            return "is empty"
        case "too_long":
            return f"has more than {context['max_length']} items"
        case "string_too_long":
            return f"is over {context['max_length']} letters long"
        case "greater_than":
            return f"must be over {context['gt']:g}, not {value!r}"
        case "literal_error":
            return f"{value!r} is not one of {context['expected']}"
        case "string_pattern_mismatch":
            return f"{value!r} cannot be a name"
        case kind:
            return f"must be {_KINDS.get(kind.split('_')[0], 'something else')}, not {value!r}"
