"""``layout: {data: 2, tensor: 2, sequence: true}`` as an experiment file writes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from experiments import parallel
from experiments.errors import ExperimentError, nearest
from experiments.parallel.composed import MESH
from experiments.parallel.stages.stages import SCHEDULES
from experiments.plan import AUTO, Layout
from workloads import Workload

Error = Callable[[str | None, str, str | None], ExperimentError]
"""Makes an error of a key below ``layout`` (``None``: of the layout), a message and a hint."""


def layout_of(
    written: Any, workers: int | None, workloads: Iterable[Workload], base: str | None, error: Error
) -> Layout:
    """The layout of a name, ``auto``, or a mapping of dimensions to numbers of ranks.

    Args:
        workers: as the file has them; ``None``: it has none.
        workloads: that it has to fit.
        base: the folder that a relative file starts from.

    Raises:
        ExperimentError: there is no such layout; an unknown dimension, a wrong number of ranks, or
            a workload that cannot be cut so.
    """
    if isinstance(written, Mapping):
        return _of_dimensions(written, workers, workloads, error)
    if not isinstance(written, str | None):
        forms = "a name, auto, or dimensions: layout: {data: 2, shard: 2}"
        raise error(None, f"layout cannot be {written!r}", forms)
    if written in (None, AUTO):
        return Layout(auto=(written == AUTO) or None, workers=workers or 1)
    try:
        return Layout(name=parallel.get(written, base).name, workers=workers or 1)
    except ExperimentError as unknown:
        is_dimension = written in parallel.DIMENSIONS.packaged
        hint = f"layout: {{{written}: 2}}" if is_dimension else unknown.hint
        raise error(None, str(unknown), hint) from None


def _of_dimensions(
    written: Mapping[Any, Any], workers: int | None, workloads: Iterable[Workload], error: Error
) -> Layout:
    dimensions = parallel.DIMENSIONS.packaged  # data parallelism is not among them
    names = ("data", *sorted(dimensions, key=lambda name: dimensions[name].order))
    written, pipeline = _without_options(written, error)
    for key, value in written.items():
        if key not in names:
            raise error(key, f"layout has no dimension {key!r}", nearest(str(key), names))
        if key != "data" and dimensions[key].switch:
            if not isinstance(value, bool):
                raise error(key, f"layout: {key} must be true or false, not {value!r}", None)
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            hint = f"for example: layout: {{{key}: 2}}"
            raise error(key, f"layout: {key} must be a number of ranks, not {value!r}", hint)
    order = (*MESH, *(name for name in names if name not in MESH))
    sizes = {name: int(written[name]) for name in order if written.get(name)}
    sizes = {name: size for name, size in sizes.items() if size > 1 or name not in MESH}
    ranks = math.prod(sizes.values())
    if workers is not None and workers != ranks:
        product = " × ".join(str(sizes[name]) for name in sizes if name in MESH) or "1"
        raise error(
            None,
            f"layout has {product}{f' = {ranks}' if '×' in product else ''} ranks, and workers is "
            f"{workers}",
            "leave workers out: it is the product",
        )
    for workload in workloads:
        for name in (each for each in sizes if each != "data"):
            refusal = dimensions[name].refusal(sizes, workload.layout_plan())
            if refusal is not None:
                message = f"layout: {name} cannot cut the model of {workload.name}: {refusal[0]}"
                raise error(name, message, refusal[1])
    if not sizes.keys() - {"data"}:
        return Layout(workers=ranks)
    return Layout(
        workers=ranks,
        dimensions=tuple(sizes.items()),
        pipeline=pipeline if "pipeline" in sizes else (),
    )


def _without_options(
    written: Mapping[Any, Any], error: Error
) -> tuple[dict[Any, Any], tuple[tuple[str, Any], ...]]:
    """``pipeline: {stages: 2, schedule: gpipe}`` as ``pipeline: 2``, and the rest.

    Raises:
        ExperimentError: an unknown key or schedule, or no number of micro-batches.
    """
    stated = written.get("pipeline")
    if not isinstance(stated, Mapping):
        return dict(written), ()
    known = ("stages", "schedule", "micro_batches")
    for key in stated:
        if key not in known:
            raise error("pipeline", f"layout: pipeline has no {key!r}", nearest(str(key), known))
    if "stages" not in stated:
        hint = "for example: pipeline: {stages: 2, schedule: 1f1b}"
        raise error("pipeline", "layout: pipeline has no stages: its number of ranks", hint)
    schedule, count = stated.get("schedule", "1f1b"), stated.get("micro_batches")
    if schedule not in SCHEDULES:
        hint = nearest(str(schedule), SCHEDULES)
        raise error("pipeline", f"layout: unknown pipeline schedule {schedule!r}", hint)
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        message = f"layout: micro_batches of a pipeline must be a number, not {count!r}"
        raise error("pipeline", message, "for example: micro_batches: 4")
    options = {"schedule": schedule, "micro_batches": count}
    return {**written, "pipeline": stated["stages"]}, tuple(
        (key, value) for key, value in options.items() if key in stated
    )
