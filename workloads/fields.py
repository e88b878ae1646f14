"""Fields of a workload: values that come from YAML or a call, checked against the annotations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, get_origin, get_type_hints

from workloads.errors import WorkloadError, nearest
from workloads.registry import name_of


def coerce(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` as the annotations of ``cls`` want them: a list becomes a tuple, 1 a float.

    A lone value where a tuple is annotated becomes a tuple of one. An annotation that cannot be
    read (a name that exists for type checkers only) is not checked.

    Raises:
        WorkloadError: an unknown field, a missing one, or a value of the wrong type.
    """
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in values:
        if name not in known:
            raise WorkloadError(
                f"workload {name_of(cls)} has no field {name!r}", hint=nearest(name, known)
            )
    missing = [
        name
        for name, field in known.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise WorkloadError(
            f"workload {name_of(cls)} needs a value for its field {missing[0]!r}",
            hint=f"give the field a default, or say {missing[0]} where the workload is named",
        )
    return {name: _one(cls, name, value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """A field's value as JSON has it: tuples become lists."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def _one(cls: type, name: str, value: Any) -> Any:
    from pydantic import ValidationError

    adapter, is_tuple = _adapters(cls).get(name, (None, False))
    if adapter is None:
        return value
    if is_tuple and not isinstance(value, (list, tuple)):
        value = (value,)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise WorkloadError(
            f"field {name!r} of workload {name_of(cls)} cannot be {value!r}: {reason}"
        ) from None


@functools.cache
def _adapters(cls: type) -> dict[str, tuple[Any, bool]]:
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError, TypeError):
        return {}
    adapters: dict[str, tuple[Any, bool]] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        try:
            adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
        except PydanticUserError:  # a type with a configuration of its own
            adapter = TypeAdapter(hint)
        adapters[field.name] = (adapter, (get_origin(hint) or hint) is tuple)
    return adapters
