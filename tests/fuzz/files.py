"""Odd experiment files, and what comes of them: ``python -m tests.fuzz.files random 0 500``."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from experiments.config import yaml_lines
from experiments.config.compile import Experiment, parse
from experiments.config.sources import names, packaged_text
from experiments.records.planned import planned
from results.errors import ClearError
from tests.experiments.files import folder
from tests.fuzz.corpus import EXPERIMENTS
from tests.fuzz.guard import Outcome, outcome, report

WIDE = (
    "import torch\nfrom workloads import Classification\n\nclass Wide(Classification):\n"
    "    target = 'validation_error < 0.5'\n"
    + "".join(f"    f{i}: int = 0\n" for i in range(8))
    + "    def data(self): return {}\n    def model(self): return torch.nn.Linear(4, 2)\n"
)
BASE = """\
workload: digits-softmax
grid:
  batch_size: 8..64
  optimizer: [sgd]
trials: 4
budget: 20 steps
"""
NUMBERS = (
    "0 1 2 3 7 64 1e3 1e6 1e9 1e12 1e15 1e18 9223372036854775807 9223372036854775808 1e30 1e300 "
    "-1 -9223372036854775808 -1e30 0.5 1.0000001 1.000000000000001 1.5 1e-300 1e-15 0x10 .nan .inf "
    f"1e400 {'9' * 25} {'9' * 5000} 0x{'f' * 3000}"
).split()
WORDS = [
    *("~", "true", "no", "''", "é", "日本語", '"\\0"', '"\\ud800"', '"\\U0001F600"', '"\\x07"'),
    *("'a b'", "a/b", "../..", "/dev/zero", "~nobody/x.yaml", "a" * 3000, "\u202eabc", "it''s"),
    *(
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "{a: 1}",
        "[null]",
        "*unknown",
        "&a [*a]",
        "!foo bar",
        "!!set {a}",
    ),
    *("!!python/object/apply:os.system [ls]", "!!binary aGk=", "2001-01-01", "12:30", "@x", "`x`"),
    *('"unclosed', "[unclosed", "a: b: c", "? a", "- a", "|\n    text", "<<", "%x", "sgd", "[sgd]"),
    *("[sgd, sgd]", "Adam", "Optimizer", "lr_scheduler", "my_opt.py:Sign", "gone.py:A", ":", ".py"),
    *("my_model.py:MyModel", "my_model.py", "a.py:b:c", f"{'n' * 500}.py:A", "linear", "sobol"),
    *("random", "points", "grid", "off", "float64", "module", "best_of_10", "full", "full, 8"),
    *("8..1e300", f"8..{'9' * 30}", f"1..{'9' * 4400}", "64..8", "1..", "٨..٦٤", "1e999 steps"),
    *("1e999999999 steps", "1e-999999999 steps", "1e18 steps", "0 steps", "5 lightyears", "+"),
    *("validation_error < 1.2.3", "validation_error < 1e999", "validation_error > 0.1", "x < 1"),
    *("1%", "1e-20%", f"{'9' * 400}%", "[{learning_rate: 0.1}]", "[{learning_rate: .nan}]"),
    *("[{learning_rate: 1}, {learning_rate: 2, momentum: 1}]", "{sgd: [{learning_rate: 1}]}"),
]
USUAL = [
    *(
        "0.1",
        "0.5",
        "0.01",
        "2",
        "8",
        "20",
        "off",
        "1%",
        "linear",
        "[0.1, 0.2]",
        "5 epochs + 3 steps",
    ),
    *("{log: [0.1, 1]}", "{linear: [0, 0.5]}", "{integer: [1, 9]}", "{discrete: [0.1, 0.2]}"),
    *("{reverse_log: [0.5, 0.9]}", "random", "float64", "[1, 2]", "validation_error < 0.1", "full"),
]
"""Where all is odd nothing is, and the first error hides what lies behind it."""
RANGES = ("log", "linear", "integer", "reverse_log", "discrete", "lgo")
TOP = [*Experiment.model_fields, "extends", "unknown", "<<"]
GRID = [
    *("batch_size", "optimizer", "schedule", "precision", "ghost_batch", "label_smoothing", "kind"),
    *("width", "widths", "learning_rate", "dimension", "unknown"),
]
SEARCH = [
    *("learning_rate", "momentum", "decay", "end_factor", "warmup", "warmup_steps", "decay_steps"),
    *("sgd", "adam", "linear", "beta1", "label_smoothing", "weight_decay", "width", "unknown"),
    *("Adam", "x.py:Y"),
]
UNITS = ("steps", "epochs", "examples")
SIGNS = "abc019:{}[],-#&*!|>'\"%@` \n\t\\.~?<é\u2028\ufeff\x00\x07\u202e\U0001f600"


def value(draw: random.Random) -> str:
    """A value as a file writes it: a number, a budget, a range, or something odd."""
    if draw.random() < 0.4:
        return draw.choice(USUAL)
    kind = draw.random()
    if kind < 0.35:
        return draw.choice(NUMBERS)
    if kind < 0.45:
        return f"{draw.choice(NUMBERS)} {draw.choice(UNITS)}"
    if kind < 0.6:
        ends = f"{draw.choice(NUMBERS)}, {draw.choice(NUMBERS)}"
        return f"{{{draw.choice(RANGES)}: [{ends}]}}"
    return draw.choice(WORDS)


def built(draw: random.Random) -> str:
    """A whole experiment with a few odd values."""
    top = {"workload": draw.choice(["digits-softmax"] * 3 + ["quadratic", "my_model.py:MyModel"])}
    top |= {"trials": "4", "budget": "20 steps"}
    grid = {"batch_size": draw.choice(["8..32", "8", "[8, 16]"])}
    grid["optimizer"] = draw.choice(["sgd", "[sgd, momentum]", "adam", "Adam"])
    search: dict[str, str] = {}
    if draw.random() < 0.3:
        grid["schedule"] = draw.choice(["linear", "[constant, cosine]"])
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        part, keys = draw.choice([(top, TOP), (top, TOP), (grid, GRID), (search, SEARCH)])
        key, odd = draw.choice(keys), value(draw)
        if part is search and draw.random() < 0.3:
            odd = f"{{{draw.choice(SEARCH)}: {odd}}}"
        part[key] = odd
    for key, part in (("grid", grid), ("search", search)):
        if key not in top and part:
            top[key] = "\n" + "\n".join(f"  {name}: {odd}" for name, odd in part.items())
    return "".join(f"{key}: {odd}\n" for key, odd in top.items())


def mutated(draw: random.Random) -> str:
    """A packaged file with some of its signs, lines or values changed."""
    found = draw.choice([*map(packaged_text, names()), BASE, BASE, BASE])
    for _ in range(draw.randint(1, 6)):
        lines = found.splitlines() or [""]
        at, row = draw.randrange(len(found) + 1), draw.randrange(len(lines))
        kind = draw.randrange(6)
        if kind == 0:
            found = found[:at] + draw.choice(SIGNS) + found[at:]
        elif kind == 1:
            found = found[:at] + found[at + draw.randint(1, 6) :]
        elif kind == 2:
            found = "\n".join([*lines[:row], *lines[row + 1 :]])
        elif kind == 3:
            found = "\n".join([*lines[:row], draw.choice(lines), *lines[row:]])
        elif kind == 4:
            lines[row] = draw.choice(["  ", "\t", ""]) + lines[row].strip()
            found = "\n".join(lines)
        else:
            lines[row] = lines[row].partition(":")[0] + f": {value(draw)}"
            found = "\n".join(lines)
    ends = draw.choice(["\n"] * 6 + ["\r", "\r\n", "\n\n", "\u2028"])
    return draw.choice(["", "", "", "\ufeff"]) + found.replace("\n", ends)


def large(draw: random.Random) -> str:
    """An experiment with very much of something."""
    count = draw.choice([10, 200, 3000])
    many: Sequence[Callable[[], str]] = (
        lambda: f"{BASE}a: {'[' * count}{']' * count}\n",
        lambda: f"{BASE}search: {'{a: ' * count}1{'}' * count}\n",
        lambda: BASE + "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]\n" if i else
                               "k0: &k0 [x]\n" for i in range(min(count, 30))),
        lambda: f"{BASE}points: [{', '.join(f'{{learning_rate: {i + 1}}}' for i in range(count))}]",
        lambda: BASE.replace("8..64", f"[{', '.join(str(i + 1) for i in range(count))}]"),
        lambda: BASE + "".join(f"k{i}: 1\n" for i in range(count)),
        lambda: BASE.replace("20 steps", " + ".join(["1 steps"] * count)),
        lambda: f"{BASE}target: [{', '.join(f'validation_error < {i}' for i in range(count))}]\n",
        lambda: f"{BASE}- " * count,
        lambda: f"{BASE}name: {'x' * count}\n",
    )  # fmt: skip
    return draw.choice(many)()


def case(seed: int) -> tuple[str, list[str]]:
    """The text and the ``--set`` of one case."""
    draw = random.Random(seed)
    make = draw.choice([built] * 6 + [mutated] * 4 + [large])
    settings = []
    if draw.random() < 0.15:
        keys = [*TOP, *(f"grid.{key}" for key in GRID), *(f"search.sgd.{key}" for key in SEARCH)]
        settings.append(f"{draw.choice([*keys, '.', 'a..b', ''])}={value(draw)}")
    return make(draw), settings


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
"""Any value that YAML has."""


@st.composite
def mappings(draw: st.DrawFn) -> dict[str, Any]:
    """An experiment of which one to three values are anything."""
    data: dict[str, Any] = {
        "workload": "digits-softmax",
        "grid": {"batch_size": "8..32", "optimizer": ["sgd"]},
        "search": {},
        "trials": 4,
        "budget": "20 steps",
    }
    for _ in range(draw(st.integers(1, 3))):
        part, keys = draw(st.sampled_from([("", TOP), ("grid", GRID), ("search", SEARCH)]))
        place = data[part] if part and isinstance(data[part], dict) else data
        place[draw(st.sampled_from(keys) | st.text())] = draw(PLAIN)
    return data


def use(content: str, settings: Sequence[str], base: Path) -> None:
    """All that a sweep does of an experiment before it trains.

    Raises:
        AssertionError: written in full it is another experiment, or none.
    """
    experiment = parse(content, "odd.yaml", settings, base=base)
    studies = experiment.studies()
    for study in studies[:2]:
        study.draw(0, 2)
    planned(experiment)
    try:
        again = parse(experiment.to_yaml(), "again.yaml", base=base).studies()
    except ClearError as error:
        raise AssertionError(f"not again: {error}") from error
    assert [study.id for study in again] == [study.id for study in studies]


def generated(count: int, base: Path) -> Iterator[Outcome]:
    """Cases of hypothesis: as text, as people write it."""
    found: list[Outcome] = []

    @hypothesis.settings(
        max_examples=count, derandomize=True, deadline=None, database=None,
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(mappings())
    def check(data: dict[str, Any]) -> None:
        name = f"generated {len(found)}: {data!r}"
        found.append(outcome(name, lambda: use(yaml_lines.write(data), [], base)))

    check()
    yield from found


def outcomes(arguments: Sequence[str], base: Path) -> Iterator[Outcome]:
    """``corpus``, ``random FIRST STOP`` or ``generated COUNT``."""
    if arguments[0] == "generated":
        yield from generated(int(arguments[1]), base)
    elif arguments[0] == "random":
        for seed in range(int(arguments[1]), int(arguments[2])):
            content, settings = case(seed)
            yield outcome(str(seed), lambda c=content, s=settings: use(c, s, base))  # type: ignore[misc]
    else:
        for name, content in EXPERIMENTS.items():
            yield outcome(name, lambda c=content: use(c, [], base))  # type: ignore[misc]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder(Path(temporary))
        Path(temporary, "wide.py").write_text(WIDE)
        report(outcomes(sys.argv[1:], Path(temporary)))
