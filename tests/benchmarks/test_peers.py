"""The peers' programs train the same trials, and their lines are counted alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import loop, problem
from benchmarks.peers.problem import Trial
from experiments.config.compile import load
from experiments.training.batch_order import BatchOrder
from experiments.training.evaluation_grid import evaluation_steps

TRIALS = [Trial(64, rate, 0.9, seed, 40) for seed, rate in enumerate((0.02, 0.2, 1e-4))]


def test_the_experiment_file_of_ours_has_the_same_trials() -> None:
    plans = load(str(peers.FOLDER / "ours.yaml")).plans()
    ids = [trial.id for plan in plans for trial in plan.trials(0, 12)]
    given = [
        trial.id
        for plan in load("digits", problem.SETTINGS).plans()
        for trial in plan.trials(0, 12)
    ]
    assert ids == given
    assert [plan.study.budget_steps for plan in plans] == [
        trials[0].budget for trials in problem.studies().values()
    ]


def test_batches_and_evaluations_are_ours() -> None:
    trial = TRIALS[0]
    order, drawn = BatchOrder(trial.seed, 1297, 64), problem.batches(trial, 1297)
    for step in range(45):  # into the third epoch
        assert order.batches(step, 1)[0].tolist() == next(drawn).tolist()
    assert sorted(problem.evaluated(200)) == list(evaluation_steps(1.05, 200))


@pytest.mark.slow
def test_the_programs_reach_the_target_at_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers import optuna_pruner, vmapped

    monkeypatch.setattr(problem, "TARGET", 0.4)
    alone = [loop.train(trial) for trial in TRIALS]
    hits = [hit for _, hit in alone]
    assert hits[0] is not None
    assert hits[2] is None
    trained, reached = vmapped.sweep(TRIALS)
    assert (trained, reached) == (3 * 40, hits)
    trained, found = optuna_pruner.search(TRIALS)  # prunes none of the first five
    assert trained == sum(ran for ran, _ in alone)
    assert found == [hit for hit in hits if hit is not None]


def test_lines_of_code(tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    text = '"""Of two\nlines."""\n\nimport os  # one\n\n\ndef f(\n    a: int,\n) -> str:\n'
    text += '    """Text."""\n    # a comment\n    return os.sep * a\n'
    program.write_text(text)
    assert peers.lines(program) == 5
    file = tmp_path / "a.yaml"
    file.write_text("# nothing\na: 1  # one\n\nb:\n  c: 2\n")
    assert peers.lines(file) == 3


def test_a_row_a_program() -> None:
    ours = peers.Ran(10.0, 15.0, 1000, {"8": 100})
    found = {"ours": ours, "a bare PyTorch loop": ours._replace(seconds=25.0, steps=5000)}
    rows = peers.rows(lambda name, _: found.get(name, ours._replace(minima={"8": 120})))
    assert len(rows) == sum(map(len, peers.SEARCHES.values()))
    assert [str(row["what"]).split(", ")[-1] for row in rows if "ours" in str(row["what"])] == [
        "36 trials of the demo: 7 lines",
        "192 trials of the demo: 7 lines",
    ]
    loops = next(row for row in rows if "bare" in str(row["what"]))
    assert "25.0 s, 2.50× ours" in str(loops["measured"])
    assert "200 models · steps/s" in str(loops["measured"])
    assert str(loops["measured"]).endswith("the same minima")
    assert str(rows[-1]["measured"]).endswith("other minima, {'8': 120}")


def test_processor_seconds_are_those_of_all_processes() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(2**24))'])"
    seconds, processor, text = peers.timed(["python3", "-c", f"{code}; print(7)"])
    assert seconds > 0
    assert processor > 0.02
    assert text.split() == ["7"]
    with pytest.raises(SystemExit, match="exit status 3"):
        peers.timed(["python3", "-c", "raise SystemExit(3)"])
