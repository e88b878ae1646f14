"""Input that once ended in a traceback, or never: each with a name that says what it is."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

GOOD = """\
workload: digits-softmax
grid: {batch_size: 8..64, optimizer: [sgd]}
trials: 4
budget: 20 steps
"""
_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
_FIELDS = "".join(f"  f{i}: [{', '.join(map(str, range(30)))}]\n" for i in range(8))
_MANY = ", ".join(f"validation_error < {i}" for i in range(3000))

EXPERIMENTS = {
    "lists nested three thousand deep": f"a: {'[' * 3000}{']' * 3000}",
    "mappings nested three hundred deep": f"{GOOD}search: {'{a: ' * 300}1{'}' * 300}",
    "lists nested sixty deep": f"{GOOD}points: {'[' * 60}{']' * 60}",
    "an alias bomb": GOOD + _BOMB,
    "a chain of aliases": GOOD
    + "a0: &a0 x\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 300)),
    "an alias that holds itself": f"{GOOD}search: &s {{sgd: *s}}",
    "an integer of 5,000 digits": f"{GOOD}seed: {'9' * 5000}",
    "an integer of 5,000 digits in a list": f"{GOOD}points: [{{learning_rate: {'9' * 5000}}}]",
    "a hexadecimal number of 3,000 digits": f"{GOOD}seed: 0x{'f' * 3000}",
    "an integer of 400 digits": f"{GOOD}search: {{learning_rate: {'9' * 400}}}",
    "a seed beyond 64 bits": f"{GOOD}seed: 9223372036854775808",
    "a seed of 1e300": f"{GOOD}seed: 1e300",
    "a range of huge integers": f"{GOOD}search: {{learning_rate: {{log: [1, {'9' * 350}]}}}}",
    "a range wider than floats": f"{GOOD}search: {{learning_rate: {{linear: [0, 1.7e308]}}, "
    "momentum: {linear: [-1.7e308, 1.7e308]}}",
    "a range of whole numbers beyond 64 bits": GOOD
    + "search: {warmup_steps: {integer: [1, 1e30]}}",
    "a budget with an exponent of nine digits": GOOD.replace("20 steps", "1e999999999 steps"),
    "a budget with a negative exponent": GOOD.replace("20 steps", "1e-999999999 steps"),
    "a budget of 10^18 steps": GOOD.replace("20 steps", "1e18 steps"),
    "a budget of 10^11 epochs": GOOD.replace("20 steps", "1e11 epochs"),
    "a budget of an exponent of 5,000 digits": GOOD.replace("20", f"1e{'9' * 5000}"),
    "a grid of evaluations at every step": GOOD.replace("20 steps", "1e12 steps")
    + "evaluation_ratio: 1.000000000000001",
    "10^12 trials": GOOD.replace("trials: 4", "trials: 1000000000000"),
    "10^12 repeats": f"{GOOD}repeats: 1000000000000",
    "a batch size of 10^30": GOOD.replace("8..64", "1e30"),
    "a batch size of 10^30 in digits": GOOD.replace("8..64", "1" + "0" * 30),
    "batch sizes up to 1e300": GOOD.replace("8..64", "8..1e300"),
    "batch sizes up to a number of 4,400 digits": GOOD.replace("8..64", f"8..{'9' * 4400}"),
    "6·10^11 studies": "workload: wide.py:Wide\ngrid:\n  batch_size: 8\n  optimizer: sgd\n"
    + _FIELDS,
    "three thousand targets": f"{GOOD}target: [{_MANY}]",
    "a target of two points": f"{GOOD}target: validation_error < 1.2.3",
    "a target of one point": f"{GOOD}target: validation_error < .",
    "an infinite target": f"{GOOD}target: validation_error < 1e999",
    "half a surrogate pair": f'{GOOD}search: {{learning_rate: {{discrete: ["\\ud800"]}}}}',
    "half a surrogate pair in a key": f'{GOOD}search: {{"\\ud800": 1}}',
    "half a surrogate pair in a file's name": 'workload: "\\ud800.py:A"\ngrid: {optimizer: sgd}',
    "a NUL in a file's name": 'workload: "\\0.py:A"\ngrid: {optimizer: sgd}',
    "an escape beyond Unicode": f'{GOOD}name: "\\U00110000"',
    "a file's name of 500 letters": f"workload: {'n' * 500}.py:A\ngrid: {{optimizer: sgd}}",
    "an optimizer's file of 500 letters": GOOD.replace("[sgd]", f"{'n' * 500}.py:A"),
    "an optimizer's file with a NUL": GOOD.replace("[sgd]", '"\\0.py:A"'),
    "nobody's home folder": "workload: ~nobody-at-all/a.py:A\ngrid: {optimizer: sgd}",
    "a name of 300 letters": f"{GOOD}name: {'n' * 300}",
    "the abstract optimizer": GOOD.replace("[sgd]", "Optimizer"),
    "a module for an optimizer": GOOD.replace("[sgd]", "lr_scheduler"),
    "extends what never ends": f"{GOOD}extends: /dev/zero",
    "extends a NUL": f'{GOOD}extends: "\\0.yaml"',
    "extends half a surrogate pair": f'{GOOD}extends: "\\ud800.yaml"',
    "extends nobody's home folder": f"{GOOD}extends: ~nobody-at-all/a.yaml",
    "extends a name of 500 letters": f"{GOOD}extends: {'n' * 500}.yaml",
    "extends a folder": f"{GOOD}extends: ./",
    "files with a NUL": f'{GOOD}files: ["\\0"]',
    "a file's name of 500 letters among files": f"{GOOD}files: [{'n' * 500}]",
    "files of nobody": f"{GOOD}files: [~nobody-at-all/a]",
    "text with line ends": f'{GOOD}search: {{"a\\nb": 1}}',
}
"""Experiment files. ``wide.py:Wide`` has fields f0 … f7; each file ends in an ExperimentError."""

_POINTS = "batch_size,steps{}\n8,100{}\n16,60{}\n32,40{}\n64,35{}\n"


def _with(column: str, cell: str) -> str:
    """Points with a column in which all cells are the same."""
    return _POINTS.format(f",{column}", *[f",{cell}"] * 4)


CSV_FILES = {
    "a seed that is NaN": _with("seed", "nan"),
    "a seed of 1e400": _with("seed", "1e400"),
    "a seed beyond 64 bits": _with("seed", "1e19"),
    "a world size that is infinite": _with("world_size", "inf"),
    "warm-up steps of one and a half": _with("warmup_steps", "1.5"),
    "a technique that is a word": _with("technique", "bfloat16"),
    "a technique that is a number": _with("technique", "3"),
    "a technique that is a list": _with("technique", '"[1]"'),
    "a direction that is no flag": _with("lower_is_better", "perhaps"),
    "fields": _with("fields", "a"),
    "metaparameters": _with("metaparameters", "a"),
    "a source": _with("source", "me"),
    "targets": _with("targets", "a"),
    "notes": _with("notes", "a"),
    "notes that tell curves apart": _POINTS.format(",notes", ",a", ",b", ",a", ",b"),
    "a study": _with("study", "a"),
    "a trial": _with("trial", "a"),
    "an experiment": _with("experiment", "a"),
    "a column called self": _with("self", "a"),
    "a column called self that tells curves apart": _POINTS.format(",self", ",1", ",2", ",1", ",2"),
    "curves with a column called self": "batch_size,step,validation_error,self\n"
    + "".join(f"8,{step},{1 / step},a\n" for step in (1, 2, 4)),
    "a number of 400 digits in a field": _with("width", "9" * 400),
    "a number of 5,000 digits in a field": _with("width", "9" * 5000),
    "fields of 1e308": _POINTS.format(",width", ",1e308", ",1", ",1e308", ",1"),
    "steps of 1e308": "batch_size,steps\n8,1e308\n16,60\n32,40\n",
    "a batch size beyond 64 bits": "batch_size,steps\n1e19,10\n16,60\n32,40\n",
    "steps times a batch size beyond 64 bits": "batch_size,steps\n1e15,1e15\n16,60\n32,40\n",
    "a step of 1e300": "batch_size,step,validation_error\n8,1e300,0.5\n8,2,0.1\n",
    "a label outside the first plane": _with("optimizer", "\U0001f600").replace("8,100", "8,110"),
    "a label with control characters": _POINTS.format(",optimizer", ",\x07", ",\x07", ",b", ",b"),
    "a NUL": _with("optimizer", "\0"),
    "a line separator in a cell": _with("optimizer", "a\u2028b"),
    "a cell larger than csv takes": _with("optimizer", "x" * 200_000),
    "a quote left open": 'batch_size,steps\n8,100\n16,"60\n32,40\n',
    "lines that end in CR": _POINTS.format(*[""] * 5).replace("\n", "\r"),
    "a byte order mark": "\ufeff" + _POINTS.format(*[""] * 5),
    "half a surrogate pair": _with("optimizer", "\ud800"),
    "two columns of one name": _with("steps", "3"),
    "a target of two points": _with("target", "validation_error < 1.2.3"),
    "an infinite target": _with("target", "validation_error < 1e999"),
    "final losses of examples beyond 64 bits": "batch_size,examples,loss\n8,1e300,1\n8,64,2\n",
    "final losses that are infinite": "batch_size,examples,loss\n8,64,inf\n8,128,1e308\n",
    "final losses of huge batches": "batch_size,examples,loss\n1e18,1e18,1\n1e18,9e18,2\n",
    "final losses of tokens of no examples": "batch_size,tokens,tokens_per_example,loss\n8,64,,1\n",
    "final losses that are equal": "batch_size,examples,loss\n"
    + "".join(f"{b},{d},1\n" for b in (8, 16, 32, 64) for d in (64, 128, 256, 512)),
    "final losses that rise": "batch_size,examples,loss\n"
    + "".join(f"{b},{d},{b * d / 9e3}\n" for b in (8, 16, 32, 64) for d in (64, 128, 256, 512)),
    "nothing but a header": "batch_size,steps",
    "nothing": "",
}
"""CSV files of points and of whole curves."""

PARQUET_FILES: dict[str, dict[str, list[Any]]] = {
    "a seed that is NaN": {"batch_size": [8, 16], "steps": [9, 5], "seed": [float("nan"), 1.0]},
    "dates": {"batch_size": [8, 16], "steps": [9, 5], "day": [datetime.date(2020, 1, 1)] * 2},
    "times": {"batch_size": [8, 16], "steps": [9, 5], "at": [datetime.datetime(2020, 1, 1)] * 2},
    "decimals": {"batch_size": [8, 16], "steps": [9, 5], "width": [decimal.Decimal("1e30")] * 2},
    "lists": {"batch_size": [8, 16, 32], "steps": [9, 5, 3], "widths": [[1, 2], [1, 2], None]},
    "mappings in whole curves": {
        "batch_size": [8, 8], "step": [1, 2], "validation_error": [0.5, 0.1], "a": [{"b": 1}] * 2,
    },
    "bytes": {"batch_size": [8, 16, 32], "steps": [9, 5, 3], "optimizer": [b"\xff\0"] * 3},
    "steps that are infinite": {"batch_size": [8, 16], "steps": [float("inf"), 5.0]},
    "steps in bytes": {"batch_size": [8, 16, 32], "steps": [b"9", b"5", b"3"]},
    "two columns of one name": {"batch_size": [8, 16], "steps": [9, 5], "batch_size*": [1, 2]},
    "a name with blanks around": {" batch_size ": [8, 16, 32, 64], "steps": [99, 50, 30, 25]},
}  # fmt: skip
"""Columns of Parquet files; the star of a second column of one name is not in the file."""
