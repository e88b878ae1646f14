"""Techniques of an experiment file: a small sweep, identities, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchscale as bs
from experiments.config.compile import load
from experiments.identity import canonical
from experiments.plan import WorkloadRef
from tests.batchscale.blocks import blocks
from tests.experiments.technique_file import USER_FILE

TEXT = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: [none, {clip: 0.5}, {"my.py:Scaled": 0.25, clip: 1}, {"my.py:Precise": true}]
search: {learning_rate: {log: [0.1, 1]}}
trials: 4
budget: 60 steps
target: validation_error < 0.3
"""


@pytest.mark.slow
def test_a_small_sweep(user_techniques: WorkloadRef, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(user_techniques.base or "")
    monkeypatch.chdir(base)
    (base / "sweep.yaml").write_text(TEXT)
    run = bs.sweep("sweep.yaml", results="runs", address="none")
    rows = run.trials
    engines = dict(zip(rows["technique"].astype(str), rows["engine"], strict=True))
    assert len(engines) == 4
    for technique, kind in engines.items():
        assert kind == ("module" if "Scaled" in technique else "stacked")
        assert "my.py" not in technique
    assert bs.sweep("sweep.yaml", results="runs", address="none").summary.trained == 0  # type: ignore[union-attr]
    composed = rows[rows["technique"].astype(str).str.contains("Scaled")]
    assert bs.rerun(composed["trial"].iloc[0], results="runs", trust=True).equal
    named = bs.sweep(
        workload="digits-mlp", batch_size=64, optimizer="sgd", technique=[{"clip": 0.5}],
        learning_rate={"log": [0.1, 1]}, trials=4, budget="60 steps",
        target="validation_error < 0.3", results="runs", address="none",
    )  # fmt: skip
    assert named.summary is not None
    assert named.summary.trained == 0  # the same trials, said in Python


# Experiment files


def ids(base: Path, technique: str, text: str = TEXT) -> list[str]:
    (base / "my.yaml").write_text(
        "\n".join(
            f"  technique: {technique}" if "  technique:" in line else line
            for line in text.splitlines()
        )
    )
    return [plan.study.id for plan in load(base / "my.yaml").plans()]


def test_identity(user_techniques: WorkloadRef) -> None:
    base = Path(user_techniques.base or "")
    plain_id = ids(base, "none")
    assert len(plain_id) == 1
    without = [line for line in TEXT.splitlines() if "technique" not in line]
    (base / "my.yaml").write_text("\n".join(without))
    assert [p.study.id for p in load(base / "my.yaml").plans()] == plain_id
    (base / "my.yaml").write_text("\n".join([*without, "technique: {clip: 2}"]))
    beside = load(base / "my.yaml")
    assert [p.study.id for p in beside.plans()] == ids(base, "[{clip: {norm: 2.0}}]")
    assert load(base / "my.yaml").plans()[0].study.technique == {
        "precision": "float32",
        "clip": 2.0,
    }
    assert canonical(beside.plans()[0].identity["technique"]) == '{"clip":2}'
    both = ids(base, "[{clip: 2, ema: 0.5}]")
    assert both == ids(base, "[{ema: 0.5, clip: 2.0}]")
    mine = [
        ids(base, text)
        for text in ('"my.py:Scaled"', '{"my.py:Scaled": 0.5}', '{"my.py:Scaled": {}}')
    ]
    assert mine[0] == mine[1] == mine[2]
    (base / "my.py").write_text(USER_FILE.replace("if int(step) % 2", "if int(step) % 3"))
    assert ids(base, '"my.py:Scaled"') != mine[0]
    assert ids(base, "none") == plain_id
    everything = ids(base, '{"my.py:Everything": {strength: 1, kind: other}}')
    assert everything != ids(base, '{"my.py:Everything": 1}')
    resolved = load(base / "my.yaml").to_yaml()
    (base / "my.yaml").write_text(resolved)
    assert [p.study.id for p in load(base / "my.yaml").plans()] == ids(
        base, '{"my.py:Everything": 1}'
    )


def test_the_documented_technique_takes_few_lines() -> None:
    (example,) = [b for b in blocks("docs/techniques.md") if b.title == "my_technique.py"]
    assert "Technique" in example.text
    assert len(example.text.splitlines()) <= 25
