"""The defaults that the table of docs/optimizers.md gives are those of the optimizers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments import optimizers

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"
UNSAID = {"beta1": 0.9, "beta2": 0.999, "momentum": 0}
"""The defaults that the text above the table gives."""


def rows() -> dict[str, str]:
    """The cell of arguments of each optimizer."""
    cells: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        first, _, rest = line.removeprefix("| ").partition(" | ")
        names = re.findall(r"`([\w-]+)`", first)
        if line.startswith("| `") and {*names} <= {*optimizers.names()}:
            cells |= dict.fromkeys(names, rest.split("|")[0])
    return cells


def test_the_table_has_every_packaged_optimizer() -> None:
    assert rows().keys() == {*optimizers.names()}


@pytest.mark.parametrize("name", optimizers.names())
def test_defaults_are_those_of_the_optimizer(name: str) -> None:
    cell, defaults = rows()[name], optimizers.get(name).defaults
    arguments = re.findall(r"`(\w+)`(?: \(([^;:)]+)[^)]*\))?", cell)
    if name == "soap":  # one bracket for both
        arguments = [(n, "0.95" if n.startswith("beta") else given) for n, given in arguments]
    for argument, given in arguments:
        if given == "none":
            assert argument not in defaults
        elif given == "true":
            assert defaults[argument] is True
        else:
            assert defaults[argument] == float(given or UNSAID[argument])
    assert optimizers.get(name).defaults.keys() - {"learning_rate", "weight_decay"} <= {
        argument for argument, _ in arguments
    }
