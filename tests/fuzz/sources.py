"""Odd CSV and Parquet files, and what comes of them.

``python -m tests.fuzz.sources random 0 9``
"""

from __future__ import annotations

import datetime
import decimal
import io
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.parquet as pq

import batchscale as bs
from batchscale.output.regime_table import regimes as regimes_as
from batchscale.output.tables import frame_text
from results.schema import SCHEMAS
from tests.fuzz.corpus import CSV_FILES, PARQUET_FILES
from tests.fuzz.guard import Outcome, outcome, report

CELLS = [
    *("", "0", "1", "8", "3.5", "-1", "nan", "inf", "-inf", "1e400", "1e308", "1e-308", "1e-400"),
    *("9223372036854775807", "9223372036854775808", "1e19", "1e30", "9" * 400, "9" * 5000, "1_000"),
    *(
        "0x10",
        "1,5",
        "٣",
        " 8 ",
        "true",
        "None",
        "+5",
        "1e15",
        "4e18",
        "a",
        "é",
        "\U0001f600",
        "\0",
    ),
    *("\x07", "\u202e", "\u2028", "'", '"', "<b>", "=1+1", "validation_error < 0.1", "x < y"),
    *("a < 1e999", '{"a": 1}', "[1]", "a\nb", "x" * 300),
]
COLUMNS = [
    *(name for schema in SCHEMAS.values() for name in schema.names),
    *(
        "target",
        "run",
        "examples",
        "width",
        "test_x",
        "loss",
        "accuracy",
        "level",
        "best",
        "slopes",
    ),
    *(" batch_size ", " ", "", "a b", "a,b", "é", "日本", "\U0001f600", "\x07", "\u202e", "'", '"'),
    *("select", "a.b", "__index_level_0__", "Batch_Size", "0", "self", "name", "columns", "values"),
    *("group", "label", "number", "index", "x" * 300, "fields.width", "technique.x", "None"),
]
ENDS = ["\n"] * 8 + ["\r", "\r\n", "\n\n", "\u2028", "\x0b"]
SIZES = (1, 7, 10**6, 2**40, 10**15, 2**62, 2**63 - 1)


def csv_file(draw: random.Random) -> bytes:
    """Points or whole curves, with odd columns and cells."""
    curves = draw.random() < 0.35
    names = ["batch_size", *(["step", "validation_error"] if curves else ["steps"])]
    if draw.random() < 0.2:
        names[1] = draw.choice(["examples", "tokens"])
        names += ["loss"][: 0 if curves else 1]
    names += draw.sample(COLUMNS, draw.choice([0, 1, 1, 2, 3]))
    sizes = [2**k for k in range(draw.randint(1, 7))]
    if draw.random() < 0.1:
        sizes = [draw.choice(SIZES) for _ in range(4)]
    usual = ["a", "b", "1", "2", "0.5"]
    fixed = {name: draw.choice(CELLS) for name in names if draw.random() < 0.5}
    rows = [names]
    for size in sizes:
        for step in (1, 2, 4, 8, 16) if curves else (round(100 * (1 + 16 / size), 1),):
            known = [str(size), str(step), *([str(round(1 / (1 + step), 4))] if curves else [])]
            more = names[len(known) :]
            odd = [fixed.get(name, draw.choice([*usual, draw.choice(CELLS)])) for name in more]
            rows.append([*known, *odd])
    for _ in range(draw.choice([0, 0, 1, 2])):
        row = draw.choice(rows[1:])
        row[draw.randrange(len(row))] = draw.choice(CELLS)
    if draw.random() < 0.1:
        draw.choice(rows).pop()
    between = draw.choice([",", ",", ",", ";", "\t"])
    text = draw.choice(ENDS).join(between.join(map(_quoted, row)) for row in rows) + "\n"
    if draw.random() < 0.1:
        text = text[: draw.randrange(len(text))]
    text = draw.choice([*[""] * 8, "\ufeff", "# said\n\n"]) + text
    codes = ["utf-8"] * 20 + ["utf-16", "latin-1"]
    return text.encode(draw.choice(codes), "replace")


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(s in cell for s in ',;\t"\n\r') else cell


def parquet_file(draw: random.Random) -> bytes:
    """Columns of every type that Parquet has."""
    count = draw.randint(1, 6)
    utc = datetime.UTC
    odd = [
        pa.nulls(count),
        pa.array([draw.choice([0, 1, 2**63 - 1, -(2**63)]) for _ in range(count)]),
        pa.array([2**64 - 1] * count, pa.uint64()),
        pa.array([draw.choice([1.0, float("nan"), float("inf"), 1e308]) for _ in range(count)]),
        pa.array([1.5] * count, pa.float16()),
        pa.array([draw.choice([True, False, None]) for _ in range(count)]),
        pa.array([b"\xff\x00"] * count),
        pa.array([datetime.date(2020, 1, 1)] * count),
        pa.array([datetime.datetime(2020, 1, 1, tzinfo=utc)] * count),
        pa.array([2**62] * count, pa.timestamp("ns")),
        pa.array([datetime.timedelta(seconds=1)] * count),
        pa.array([datetime.time(1, 2)] * count),
        pa.array([decimal.Decimal("1.5")] * count),
        pa.array([decimal.Decimal("1e30")] * count),
        pa.array([[1, 2]] * count),
        pa.array([{"a": 1}] * count),
        pa.array([str(i) for i in range(count)]),
        pa.array(["a"] * count).dictionary_encode(),
        pa.array([draw.choice(CELLS) for _ in range(count)]),
    ]
    sizes = [2**k for k in range(count)]
    curves = draw.random() < 0.3
    found: dict[str, Any] = {"batch_size": pa.array(sizes)}
    found["step" if curves else "steps"] = pa.array([100 * (1 + 16 / b) // 1 for b in sizes])
    if curves:
        found["validation_error"] = pa.array([0.5] * count)
    for name in [*draw.sample(COLUMNS, 2), *draw.sample(list(found), draw.choice([0, 0, 1]))]:
        found[name] = draw.choice(odd)
    names = list(found)
    if draw.random() < 0.05:
        names[-1] = names[0]
    return _written(pa.table(list(found.values()), names=names), draw)


def _written(table: pa.Table, draw: random.Random) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    data = bytearray(stream.getvalue())
    if draw.random() < 0.05:
        del data[len(data) // 2 :]
    elif draw.random() < 0.05:
        for _ in range(5):
            data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def use(file: Path, number: int, folder: Path, *, repeated: bool = False) -> Iterator[Outcome]:
    """All that reads such a file; the slower ones of some files alone.

    ``repeated``: the file has been read under another number; only what depends on it is run.
    """
    named = b"validation_error" in file.read_bytes() and number % 3
    target = "validation_error < 0.3" if named else None

    def frames() -> None:
        run = bs.open(file)
        for name in ("trials", "studies", "measurements"):
            found = run.query(f"SELECT * FROM {name}")
            frame_text(found, "json").encode()
            frame_text(found, "table")

    def regimes() -> None:
        found = bs.regimes(file, target=target)
        for form in ("json", "table", "latex"):
            regimes_as(found, form).encode()

    def taken_in() -> None:
        bs.take_in("csv", file, results=folder / "runs", name=f"n{number % 5}")
        bs.open(folder / "runs").query("SELECT * FROM trials")

    def final() -> None:
        bs.regimes(file, read="final", target=target or "loss < 1")

    def optimal() -> None:
        bs.plot("optimal_batch", file, target=target, output=folder / "optimal.svg")
        plt.close("all")

    def histories() -> None:
        columns = {"_step": "steps", "validation_loss": "validation_error"}
        bs.take_in("wandb", file, results=folder / "wandb", name="n", columns=columns)
        bs.open(folder / "wandb").query("SELECT * FROM trials")

    def plot() -> None:
        bs.plot("steps", file, target=target, output=folder / "steps.svg")
        plt.close("all")

    def page() -> None:
        bs.report(file, target=target, output=folder / "report.html")

    def exported() -> None:
        bs.export("tensorboard", file, output=folder / f"board{number}")

    if not repeated:
        for reads in (frames, regimes, final):
            yield outcome(f"{number} {reads.__name__}", reads)
        yield outcome(f"{number} import", taken_in)
        yield outcome(f"{number} import wandb", histories)
    writes = ((6, 2, optimal), (6, 1, plot), (12, 3, page), (12, 9, exported))
    for every, place, more in writes:
        if number % every == place:
            yield outcome(f"{number} {more.__name__}", more)


def outcomes(arguments: Sequence[str], folder: Path) -> Iterator[Outcome]:
    """``corpus``, or ``random FIRST STOP``."""
    if arguments[0] == "corpus":
        for name, text in CSV_FILES.items():
            yield from _corpus(name, folder / "odd.csv", text.encode("utf-8", "surrogatepass"))
        for name, columns in PARQUET_FILES.items():
            stream = io.BytesIO()
            names = [name.rstrip("*") for name in columns]  # a star: one name twice
            pq.write_table(pa.table([*map(pa.array, columns.values())], names=names), stream)
            yield from _corpus(name, folder / "odd.parquet", stream.getvalue())
        return
    for number in range(int(arguments[1]), int(arguments[2])):
        draw = random.Random(number)
        make, suffix = draw.choice([(csv_file, "csv")] * 3 + [(parquet_file, "parquet")])
        file = folder / f"odd é.{suffix}"
        file.write_bytes(make(draw))
        yield from use(file, number, folder)


def _corpus(name: str, file: Path, data: bytes) -> Iterator[Outcome]:
    file.write_bytes(data)
    drawn = (1, 3) if any(odd in name for odd in ("label", "curves apart", "1e308")) else ()
    for number in (9, *drawn):
        for each in use(file, number, file.parent, repeated=number != 9):
            yield Outcome(**{**vars(each), "name": f"{name}: {each.name.partition(' ')[2]}"})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        report(outcomes(sys.argv[1:], Path(temporary)))
