"""How many devices pay (``plan``), and what a step takes on this machine (``step_times``)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from analysis.curves.units import TOKENS
from analysis.figure_data import FigureData, Progress, Query
from batchscale.analysis import QueryOptions, Source, query_of
from batchscale.answers import fitted, make_folder, refuse_overwriting, save_figure
from batchscale.branches import whole
from batchscale.output.errors import CommandError
from results.counts import count
from results.errors import ResultsError
from results.storage.save import destination
from results.storage.whole_file import write_file

if TYPE_CHECKING:
    import pandas as pd

    from analysis.curves.curve import Curve
    from analysis.curves.points import Point
    from experiments.training.auto_layout.step_times import Subject

DEVICES = tuple(2**power for power in range(11))
_OTHERWISE = "--step-time FILE.csv (devices, batch_size, seconds), as you have measured them"


def plan(
    *sources: Source,
    devices: Sequence[int] | None = None,
    price: float | None = None,
    step_time: Any = None,
    seconds_per_example: float | None = None,
    seconds_per_step: float | None = None,
    gradient_bytes: float | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    overlap: float | None = None,
    output: str | Path | None = None,
    like: str | None = None,
    **options: Unpack[QueryOptions],
) -> dict[str, Any]:
    """How many devices pay: time and money to the target, each number with its best batch size.

    Args:
        devices: the numbers of devices; those of ``step_time``, or 1 to 1,024, unless given.
        price: of a device, an hour.
        step_time: measured seconds a step: a CSV file, a data frame (as ``step_times`` returns it)
            or a list of dicts with ``devices``, ``batch_size``, ``seconds``, and ``curve`` (its
            label) where curves differ.
        seconds_per_example: instead, of one device, forward and backward: a model of compute that
            the devices share, and a ring all-reduce.
        seconds_per_step: what a step takes besides.
        gradient_bytes, bandwidth, latency: bytes, bytes a second, and seconds of a message. With
            ``step_time`` the two above are fitted to the seconds on one device.
        overlap: the share of the compute behind which communication hides, 0 to 1.
        output: a file for the figure of time and cost, with a CSV file of its numbers beside it.
        like: instead of sources, a workload's name, or data set and model (``cifar10/resnet18``):
            the packaged curves that are nearest to it, which are those of another workload.

    The others are those of ``regimes``.

    Returns:
        ``plans``, one a curve: ``choices`` by number of ``devices`` with ``batch_size``,
        ``step_seconds``, ``steps``, ``seconds`` and ``cost`` to the target and what it ``saves`` of
        the time over the number before, each with an interval at ``level``; whether it is on the
        ``frontier`` of time and cost; and how many devices are ``enough``. ``winners``: the
        quickest curve at each number of devices. ``left_out``: why curves have no plan. ``like``:
        the ``workload`` that was taken and ``why``, and the least and the most devices that are
        ``enough`` over the packaged curves of the same task, ``open`` for some of them.
    """
    model = {
        "seconds_per_example": seconds_per_example,
        "seconds_per_step": seconds_per_step,
        "gradient_bytes": gradient_bytes,
        "bandwidth": bandwidth,
        "latency": latency,
        "overlap": overlap,
    }
    query = query_of(sources_of(sources, like), options)
    return answer(
        query, devices and whole("--devices", devices, 1, "--devices 1,4,16"),
        price=price, step_time=step_time, model=model, output=output, like=like,
    )  # fmt: skip


def sources_of(sources: Sequence[Any], like: str | None) -> Sequence[Any]:
    """The sources of a plan; with ``like`` those of its curves take their place.

    Raises:
        CommandError: neither or both are given.
    """
    if bool(sources) == (like is not None):
        raise CommandError(
            "a plan is of a SOURCE, or --like a workload that has none",
            hint="a results folder, published, own, or a CSV file; or --like cifar10-resnet18",
        )
    return sources or ["own"]


def step_times(
    *sources: Source,
    ranks: Sequence[int] | None = None,
    device: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
    **options: Unpack[QueryOptions],
) -> pd.DataFrame:
    """Seconds of a step on this machine, of what each curve has trained, at its batch sizes.

    Of each batch size the best trial is trained anew for some steps, one model by itself, in five
    repeats that are interleaved. Evaluations are not in them.

    Args:
        ranks: numbers of GPUs, or of processes on CPUs, that share each batch by data parallelism;
            one, or on a machine with several GPUs 1, 2, 4 … of them, unless given.
        device: ``cpu`` or ``cuda``; a GPU if there is one, unless given.
        trust: as in ``rerun``: run the Python files that a record names, whoever wrote them.
        progress: is called with lines of how far it is.

    The others are those of ``regimes``.

    Returns:
        A row a repeat: ``devices``, ``batch_size``, ``seconds``, and ``curve`` of several; ``plan``
        takes it as ``step_time``. ``.attrs["left_out"]`` has a line for each place that does not
        fit into the memory.

    Raises:
        CommandError: a curve that batchscale has not trained, more ranks than there are devices, or
            a record that needs ``trust``.
    """
    data = fitted(query_of(sources, options), progress)
    return measure(data, ranks=ranks, device=device, trust=trust, progress=progress)


def answer(
    query: Query,
    devices: Sequence[int] | None,
    *,
    price: float | None = None,
    step_time: Any = None,
    model: Mapping[str, float | None] | None = None,
    output: str | Path | None = None,
    data: FigureData | None = None,
    like: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What ``plan`` returns; ``data``: of the query, where it was fitted before.

    Raises:
        ResultsError: as ``regimes`` does; step times that cannot be read, are of an unknown curve,
            or none at any batch size that was tested.
        CommandError: a price that is none, or a place that cannot be written to.
    """
    from analysis.fit.regimes import too_few
    from analysis.formatting import units
    from analysis.machines import plan
    from analysis.machines import step_time as times
    from batchscale.planning import likeness as likenesses

    if price is not None and not price > 0:
        raise CommandError(f"a price of {price:g} is none", hint="of a device, an hour, above 0")
    if output is not None:
        refuse_overwriting(destination(output), [*query.sources, step_time])
    taken = times.step_time(step_time, model or {})
    if taken.even and query.unit == TOKENS:
        raise ResultsError(
            "a model of step times is of whole examples, which devices share",
            hint="without --unit tokens, or with --step-time FILE.csv alone",
        )
    devices = devices or taken.devices() or DEVICES
    likeness = None if like is None else likenesses.like(like)
    data = data or fitted(likeness.query(query) if likeness else query, progress)
    unit = units(curve.example_unit for curve in data.curves)
    fits = zip(data.curves, data.regimes, strict=True)
    taken.check([curve.label for curve, fit in fits if fit is not None])
    made = plan.plans(data.curves, data.regimes, taken, devices, price=price, unit=unit)
    if not made:
        raise ResultsError(
            "no step time is known at the tested batch sizes of any curve, with any of "
            f"{count(len(devices), 'number')} of devices",
            hint="step times of batch sizes between those of the curves; each device needs an "
            "example",
        )
    if output is not None:
        from analysis.machines.figure import kind

        save_figure(kind(made), data, output)
    labels, unknown = {each.label for each in made}, "no step time is known at its batch sizes"
    answered: dict[str, Any] = {"winners": [vars(each) for each in plan.winners(made)]}
    answered["left_out"] = [
        f"{curve.label}: {unknown if fit else too_few(curve)}"
        for curve, fit in zip(data.curves, data.regimes, strict=True)
        if curve.label not in labels
    ]
    if likeness is not None and likeness.workload != like:
        made = [plan.of_another(each, **vars(likeness)) for each in made]
    if likeness is not None:
        alike = fitted(likeness.all_of_task(query), progress)
        others = plan.plans(alike.curves, alike.regimes, taken, devices)
        known = [each.enough.value for each in others if each.enough.value is not None]
        enough = {"low": min(known, default=None), "high": max(known, default=None)}
        counts = {"curves": len(others), "open": len(others) - len(known)}
        answered["like"] = {**vars(likeness), **counts, "enough": enough}
    return {"plans": [each.to_dict() for each in made], **answered}


def measure(
    data: FigureData,
    *,
    ranks: Sequence[int] | None = None,
    device: str | None = None,
    trust: bool = False,
    save: str | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """As ``step_times``, of the curves that a plan can be of; ``save``: a CSV file for the rows.

    Raises:
        CommandError: as ``step_times``, or a place that cannot be written to.
    """
    import pandas as pd

    from batchscale.trials import pick_device
    from experiments.training.auto_layout.step_times import step_times as measured

    if save is not None:
        make_folder(destination(save))  # before it takes minutes
    here, known = pick_device(device), dict[Any, Any]()
    numbers = _numbers(ranks, here)
    curves = [c for c, fit in zip(data.curves, data.regimes, strict=True) if fit is not None]
    places = [
        (curve.label, point.batch_size, _subject(curve, point, data, trust, here, known))
        for curve in curves
        for point in curve.points
        if point.steps is not None
    ]
    rows, left_out = [], []
    for n in numbers:
        at_n = [place for place in places if place[2].study.batch_size >= n]
        times = measured([subject for *_, subject in at_n], here, n, say=progress)
        for (label, size, _), seconds in zip(at_n, times, strict=True):
            if seconds is None:
                where = f"{label}, batch size {size:,} on {count(n, 'device')}"
                left_out.append(f"{where} does not fit into the memory: left out")
            row = {"curve": label, "devices": n, "batch_size": size}
            rows += [{**row, "seconds": each} for each in seconds or ()]
    if not rows:
        raise CommandError("no batch size fits into the memory", hint=_OTHERWISE)
    frame = pd.DataFrame(rows)
    frame = frame if len(curves) > 1 else frame.drop(columns="curve")
    frame.attrs["left_out"] = left_out
    if save is not None:
        write_file(os.path.abspath(save), frame.to_csv(index=False).encode())
    return frame


def _numbers(ranks: Sequence[int] | None, device: str) -> list[int]:
    """How many ranks are measured.

    Raises:
        CommandError: more than this machine has cores or GPUs for.
    """
    from experiments.parallel.local_ranks import most_ranks

    most = most_ranks(device)
    if ranks is None:
        return [1] if device == "cpu" else [n for n in DEVICES if n <= most]
    numbers = whole("--ranks", ranks, 1, "--ranks 1,2")
    if max(ranks) > most:
        here = count(most, "core" if device == "cpu" else "GPU")
        raise CommandError(f"--ranks {max(ranks)}: this machine has {here}", hint=_OTHERWISE)
    return numbers


def _subject(
    curve: Curve, point: Point, data: FigureData, trust: bool, device: str, known: dict[Any, Any]
) -> Subject:
    """The best trial of a batch size, as ``rerun`` would train it again; ``known``: as ``study_of``
    has it.

    Raises:
        CommandError: batchscale has not trained it, or its record needs ``trust``.
    """
    from batchscale.training import row_of, study_of, trial_of, untrusted
    from experiments.training.auto_layout.step_times import Subject, trusting
    from workloads.user_code.trust import RefusedCodeError

    # Runs that repeat each other have no best one.
    trials = (point.trial, *(each.trial for each in point.trial_outcomes))
    name = next(filter(None, trials), None)
    opened = next((each for each in data.opened if name in {*each.trials["trial"]}), None)
    try:
        if opened is None or name is None:
            raise CommandError(f"{curve.label} was not trained by batchscale")
        row = row_of(opened, name)
        trial = trial_of(opened, row)
    except CommandError as error:
        raise CommandError(f"a step cannot be measured: {error}", hint=_OTHERWISE) from None
    record = None if trust else str(opened.root)
    try:
        with trusting(record):
            subject = Subject(study=study_of(opened, row, known), trial=trial, record=record)
        subject.context(device)
    except RefusedCodeError as refused:
        raise untrusted(opened, row, refused) from None
    if subject.study.ramp is not None:
        why = f"the batch size of {curve.label} grows in training"
        raise CommandError(f"a step cannot be measured: {why}", hint=_OTHERWISE)
    return subject
