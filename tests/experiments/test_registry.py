"""An optimizer, a schedule or a technique is one file: nothing else names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import optimizers, schedules
from experiments.registry import Registry

FILE = """
from experiments.schedules.base import Schedule

class Square(Schedule):
    name = "square"
    def shape(self, step, decay_steps):
        return max(0.0, 1 - step / decay_steps) ** 2

class _Helper(Schedule):
    pass
"""


def test_a_packaged_entry_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others: ``tests/test_contributing.py``."""
    registry = schedules.SCHEDULES
    before = registry.names()  # before the folder has another file: they are read once
    (tmp_path / "added_by_a_test.py").write_text(FILE)
    monkeypatch.setattr(schedules, "__path__", [*schedules.__path__, str(tmp_path)])
    monkeypatch.delitem(vars(registry), "packaged")
    assert sorted(registry.names()) == sorted([*before, "square"])
    assert registry.get_class("square").name == "square"
    monkeypatch.setitem(vars(registry), "packaged", {})
    assert registry.names() == []


@pytest.mark.parametrize("registry", [optimizers.OPTIMIZERS, schedules.SCHEDULES])
def test_every_packaged_entry_has_its_name(registry: Registry) -> None:
    for name in registry.names():
        entry = registry.get(name)
        assert (entry.name, entry.label, entry.display_name) == (name, name, None)
        named = registry.get(f"{name} as other")
        assert (named.name, named.label, registry.label(f"{name} as other")) == (
            name,
            *["other"] * 2,
        )
