"""Sections of ``search`` that are of an optimizer inside a mapping of parameters to optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.compile import load, parse
from experiments.errors import ExperimentError
from tests.experiments.test_routed import FILE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def of_search(folder: Path, optimizer: str, search: str, *settings: str) -> Any:
    file = folder / "mine.yaml"
    text = f"workload: mine.py:Grouped\ngrid: {{batch_size: 16, optimizer: {optimizer}}}\n"
    file.write_text(f"{text}search: {search}\ntrials: 2\nbudget: 10 steps\n")
    return load(file, settings)


def ids(experiment: Any) -> list[list[str]]:
    return [[trial.id for trial in plan.trials(0, 2)] for plan in experiment.plans()]


MIXED = '{"*.weight": muon, "*": "mine.py:Heavy as mass"}'


def test_a_section_of_search_is_of_the_optimizer_of_a_mapping_too(folder: Path) -> None:
    """The same trials as with its name before each metaparameter."""
    sections = "{{muon: {{learning_rate: {{log: [1e-3, 1]}}, momentum: 0.9}}, {}: {{mass: 0.5}}}}"
    prefixed = "{muon.learning_rate: {log: [1e-3, 1]}, muon.momentum: 0.9, mass.mass: 0.5}"
    expected = of_search(folder, f"[{MIXED}]", prefixed)
    for name in ("mass", "'mine.py:Heavy'"):
        made = of_search(folder, f"[{MIXED}]", sections.format(name))
        (combination,) = made.combinations
        assert combination.fixed["muon.momentum"] == 0.9
        assert ids(made) == ids(expected)
        assert ids(parse(made.to_yaml(), base=folder)) == ids(made)
    # A section of the mapping itself goes before.
    mapping = '{"*.weight": muon, "*": adamw, as: both}'
    search = "{muon: {momentum: 0.9}, both: {muon.momentum: 0.8}, adamw: {beta2: 0.99}}"
    (combination,) = of_search(folder, f"[{mapping}]", search).combinations
    assert combination.fixed["muon.momentum"] == 0.8
    assert combination.fixed["adamw.beta2"] == 0.99


def test_a_section_is_of_an_optimizer_of_the_grid_alone_where_there_is_one(folder: Path) -> None:
    """The trials of a mapping are those without the section, also where --set leaves it alone."""
    mapping = '{"*.weight": muon, "*": adamw}'
    section = "{adamw: {learning_rate: 0.01, beta2: 0.99}}"
    both, without = (of_search(folder, f"[adamw, {mapping}]", text) for text in (section, "{}"))
    assert ids(both)[1] == ids(without)[1]
    assert ids(both)[0] != ids(without)[0]
    narrowed = of_search(folder, f"[adamw, {mapping}]", section, f"grid.optimizer=[{mapping}]")
    assert ids(narrowed) == ids(both)[1:]
    # That of muon, which is made of two optimizers, is not of a mapping: its AdamW has no section.
    assert ids(of_search(folder, "[muon]", section)) == ids(of_search(folder, "[muon]", "{}"))


@pytest.mark.parametrize(
    ("search", "message", "hint"),
    [
        ("{muon: {momentun: 0.9}}", "search.muon.momentun: muon has no argument", "momentum"),
        ("{muon: {beta1: 0.9}}", "search.muon.beta1: muon has no argument 'beta1'", "momentum"),
        ("{muon: {decay: 0.5}}", "search.muon.decay: muon has no argument", "search: {decay: …}"),
        ("{muon: {momentum: 1.5}}", r"search.muon.momentum: 1.5 is outside \[0, 1\)", ""),
        ("{moun: {momentum: 0.9}}", "search.moun: no optimizer or schedule of that name", "muon"),
        (
            "{mass: {mass: 0.5}, 'mine.py:Heavy': {mass: 0.5}}",
            "search has mine.py:Heavy and mass, which it is called",
            "keep one of the two",
        ),
    ],
)
def test_a_wrong_section_of_a_mappings_optimizer_is_refused(
    folder: Path, search: str, message: str, hint: str
) -> None:
    with pytest.raises(ExperimentError, match=f"mine.yaml:3: {message}") as caught:
        of_search(folder, f"[{MIXED}], schedule: linear", search)
    assert hint in (caught.value.hint or "")
