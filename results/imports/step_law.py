"""the tables of Step Law: final losses over model sizes, tokens, batch sizes and learning rates

``data/dense_lr_bs_loss.csv`` (1,911 runs) or ``data/moe_lr_bs_loss.csv`` (708 runs) of
github.com/step-law/steplaw; Li et al. 2025, Predictable Scale: Part I (arXiv:2503.04715). A batch
``bs`` is of sequences; their steps are ``ti``, or those of ``D`` tokens where that is missing. The
loss is their smoothed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from results.errors import ResultsError
from results.extensions import Option
from results.imports import Imported
from results.imports.support.runs import FINAL, Run, commit_runs, needed, size_of
from results.storage.location import Location
from results.user_tables.table_file import TableFile

_SEQUENCE = 2048
_SMOOTH = ("smooth loss", "smooth_loss")
_SIZES = ("N", "Na")
_SHAPES = ("h", "ffnh", "numh", "numl", "topk", "nume", "moeh", "moe_layer_enum_type")


def import_step_law(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="A column of the file under another name: --map lr=learning_rate.",
            flag="--map",
            metavar="NAME=THEIRS",
        ),
    ] = None,
    sequence: Annotated[
        int | None, "Tokens of a sequence, where the file has no column seq_len; 2048 unless given."
    ] = None,
    name: Annotated[str | None, "The experiment that the rows become; the file's name."] = None,
) -> Imported:
    """Import a table of Step Law into ``results``: ``--read final`` reads it.

    Raises:
        ResultsError: a column is missing, or a cell is no such number, with its line; nothing is
            written.
    """
    if sequence is not None and sequence < 1:
        raise ResultsError(
            f"--sequence {sequence} is no number of tokens", hint="for example: --sequence 2048"
        )
    file = TableFile.read(path).renamed(columns or {})
    needed(file, "N", "D", "lr", "bs")
    smooth = next((name for name in (*_SMOOTH, "loss") if file.has(name)), None)
    if smooth is None:
        needed(file, "smooth loss")
    assert smooth is not None
    losses = file.numbers(smooth, empty=True)
    tokens, sizes = file.numbers("D", above=0), file.numbers("bs", least=1, whole=True)
    rates = file.numbers("lr", above=0)
    steps = file.numbers("ti", above=0, empty=True) if file.has("ti") else [None] * len(losses)
    lengths = (
        file.numbers("seq_len", least=1, whole=True)
        if file.has("seq_len")
        else [sequence or _SEQUENCE] * len(losses)
    )
    fields = _fields(file)
    runs = []
    for row, (loss, given) in enumerate(zip(losses, steps, strict=True)):
        size, length = size_of(file, row, sizes[row]), int(lengths[row] or 0)
        taken = given if given is not None and given == given else None
        taken = taken or float(tokens[row] or 0) / (size * length)
        if not 1 <= round(taken) < 2**62 / size:
            raise file.fail(row, f"{taken:g} steps of {size} sequences are no training run")
        ended = loss is not None and abs(loss) < float("inf")
        measured = {"train_loss": loss} if loss is not None and loss == loss else {}
        runs.append(
            Run(
                name=file.places[row].replace(" ", "-"),
                batch_size=size,
                measurements=[(round(taken), measured)],
                steps_run=round(taken),
                ended=ended,
                role=FINAL,
                columns={
                    "workload": "step-law",
                    "model": "moe" if file.has("Na") else "dense",
                    "optimizer": "adamw",
                    "schedule": "cosine",
                    "example_unit": "sequence",
                    "tokens_per_example": length,
                    "fields": fields[row],
                },
                metaparameters={"learning_rate": rates[row]},
                published={name: cells[row] for name, cells in file.columns.items()},
            )
        )
    return commit_runs(
        results,
        runs,
        experiment=name or path.stem,
        source={
            "citation": "Li et al., Predictable Scale: Part I, Step Law, 2025 (arXiv:2503.04715)",
            "notes": f"the loss is {smooth!r} of {path.name}",
        },
        files=[path],
        options=(sorted((columns or {}).items()), sequence),
    )


def _fields(file: TableFile) -> list[dict[str, float | str]]:
    """The fields of each row: the size, and what of the shape a size does not determine."""
    sizes = [name for name in _SIZES if file.has(name)]
    cells = {name: file.numbers(name, above=0) for name in sizes}
    keys = list(zip(*cells.values(), strict=True))
    shapes = []
    for name in _SHAPES:
        if file.has(name):
            pairs = set(zip(keys, map(str, file.columns[name]), strict=True))
            if len(pairs) > len(set(keys)):
                shapes.append(name)
    rows: list[dict[str, float | str]] = []
    for at, key in enumerate(keys):
        numbers = {name: int(value or 0) for name, value in zip(sizes, key, strict=True)}
        texts = {name: str(file.columns[name][at]) for name in shapes}
        rows.append({**numbers, **texts})
    return rows
