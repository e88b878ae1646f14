"""The batch size of an update, on all devices, from what a log has of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from results.errors import ResultsError
from results.user_tables import names
from results.user_tables.mapped import computed
from results.user_tables.run_names import with_batch_size_of_names
from results.user_tables.table_file import TableFile, number


def with_batch_size(table: TableFile) -> TableFile:
    """The table with the column ``batch_size``, if it is known.

    Raises:
        ResultsError: it may be that of one device, or of one forward pass; or two columns differ.
    """
    of_all, plain, per_device = (
        [*names.candidates(table, aliases, config=True)]
        for aliases in (names.GLOBAL, names.PLAIN, names.PER_DEVICE)
    )
    if not of_all and "train_micro_batch_size_per_gpu" in map(_last, per_device):
        # As DeepSpeed has it.
        of_all = [each for each in plain if _last(each) == "train_batch_size"]
    if per_device and not of_all:
        # What is called train_batch_size beside it is that of one process.
        plain = [each for each in plain if names.differ(table, each, per_device[0])]
        plain = [each for each in plain if not names.plain(each).endswith("train_batch_size")]
    named = of_all or plain
    for other in named[1:]:
        if names.differ(table, named[0], other):
            raise ResultsError(
                f"{table.path}: {named[0]} and {other} differ, and either may be the batch size",
                hint=f"say which: batchscale import PATH --map batch_size={named[0]}",
            )
    if named:
        if not of_all and not per_device:
            _refuse_multiples(table, named[0])
        if table.has("batch_size") and named[0] != "batch_size":
            table = table.renamed({"logged_batch_size": "batch_size"})
        return table.renamed({"batch_size": named[0]})
    return _product(table, per_device[0]) if per_device else with_batch_size_of_names(table)


def _last(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def _product(table: TableFile, each: str) -> TableFile:
    """Per device, times the passes of an update, times the devices."""
    times, devices = (
        next(names.candidates(table, aliases, config=True), None)
        for aliases in (names.ACCUMULATED, names.DEVICES)
    )
    if times is None or devices is None:
        lacking = "how many devices" if times else "how many passes an update has, and of devices"
        known = "*".join((each, times or "PASSES", devices or "DEVICES"))
        raise ResultsError(
            f"{table.path}: {each} is the batch size of one device's forward pass; {lacking} "
            "there were is not in the log",
            hint=f"say it, as a number: batchscale import PATH --map batch_size={known}",
        )
    factors = (each, times, devices)
    text = "*".join(factors)
    made = table.with_columns({"batch_size": computed(table, "batch_size", text)}, drop=factors)
    return replace(made, means={**table.means, "batch_size": text})


def _multiples(table: TableFile) -> list[str]:
    """Columns by which a batch size of one device is to be multiplied, if they are not all 1."""
    columns = [
        *names.candidates(table, names.ACCUMULATED, config=True),
        *names.candidates(table, names.DEVICES, config=True),
    ]
    # Where a table is one of ours, world_size is what batch_size is divided by.
    return [
        name
        for name in columns
        if name != "world_size" and not {*map(number, table.columns[name])} <= {None, 1.0}
    ]


def _refuse_multiples(table: TableFile, name: str) -> None:
    if multiples := _multiples(table):
        values = ", ".join(f"{each} ({_range(table.columns[each])})" for each in multiples)
        raise ResultsError(
            f"{table.path}: {name} may be that of one device's forward pass, for {values} "
            f"{'is' if len(multiples) == 1 else 'are'} there too",
            hint=f"say it: batchscale import PATH --map batch_size={'*'.join((name, *multiples))}, "
            f"or --map batch_size={name}*1 if it is that of an update",
        )


def refuse_per_device(table: TableFile, name: str) -> None:
    """Refuse the batch size of one device for that of an update.

    Raises:
        ResultsError: ``name`` is that of one device, and there are multiples of it.
    """
    if name not in names.candidates(table, names.PER_DEVICE, config=True):
        return
    if multiples := _multiples(table):
        raise ResultsError(
            f"{name} is the batch size of one device's forward pass, not that of an update",
            hint=f"--map batch_size={'*'.join((name, *multiples))}",
        )


def _range(cells: Sequence[object]) -> str:
    values = sorted({value for cell in cells if (value := number(cell)) is not None})
    return " … ".join(f"{value:g}" for value in dict.fromkeys((values[0], values[-1])))
