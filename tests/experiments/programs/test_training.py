"""The training of a program: what is measured, and when it stops."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.errors import ExperimentError, ProgramError
from experiments.programs import process
from experiments.programs.training import ProgramTraining
from results.run_state import processes
from tests.experiments.programs.scripted import ended, pack, trained

LOSSES = "for step in range(10, 110, 10): say(step, val_loss=1 - step / 100)"
"""0.4 at step 60 is the first below the target."""


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)


def test_a_trial_ends_at_its_target(tmp_path: Path) -> None:
    measured, outcome = ended(pack(tmp_path, LOSSES + "\ntime.sleep(1000)"), tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]
    assert [m.examples for m in measured] == [640 * i for i in range(1, 7)]
    assert measured[-1].metrics == {"val_loss": 0.4}
    assert (outcome.status, outcome.stop_reason) == ("COMPLETE", "target")
    assert (outcome.steps_to_target, outcome.last_miss, outcome.steps_run) == (60, 50, 60)
    assert outcome.examples_run == 60 * 64


def test_equal_to_the_target_is_no_hit(tmp_path: Path) -> None:
    code = "say(50, val_loss=0.5); say(100, val_loss=0.5)"
    _, outcome = ended(pack(tmp_path, code), tmp_path)
    assert (outcome.stop_reason, outcome.steps_to_target) == ("budget", None)


def test_it_goes_on_to_its_budget_where_the_target_does_not_stop_it(tmp_path: Path) -> None:
    of = pack(tmp_path, LOSSES, stop_at_target=False)
    measured, outcome = ended(of, tmp_path)
    assert len(measured) == 10
    assert (outcome.stop_reason, outcome.steps_to_target, outcome.steps_run) == ("budget", 60, 100)


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("say(10, val_loss=1); say(20, val_loss=float('nan'))", 20),
        ("say(10, val_loss=1); say(15, loss=float('inf'))", 15),
        ("say(10, **{'train/loss': float('-inf')})", 10),
    ],
)
def test_a_loss_that_is_not_finite_is_a_divergence(tmp_path: Path, code: str, step: int) -> None:
    measured, outcome = ended(pack(tmp_path, code + "\ntime.sleep(1000)"), tmp_path)
    assert all(m.step == 10 for m in measured)
    assert (outcome.status, outcome.stop_reason, outcome.steps_run) == (
        *("INFEASIBLE", "diverged"),
        step,
    )


@pytest.mark.parametrize("value", ["nan", [0.5], {"mean": 0.5}])
def test_a_metric_that_is_no_number_is_named(tmp_path: Path, value: object) -> None:
    code = f"say(10, val_loss=1.0); say(20, val_loss={value!r}); say(100, val_loss=None)"
    with pytest.raises(ProgramError) as raised:
        trained(pack(tmp_path, code), tmp_path)
    said = f"exit status 0; val_loss was {value!r} at step 20, which is no number"
    assert str(raised.value).endswith(said)


def test_another_metric_may_be_infinite(tmp_path: Path) -> None:
    code = "say(10, val_loss=0.4, gradient_norm=float('inf'))"
    _, outcome = ended(pack(tmp_path, code), tmp_path)
    assert outcome.stop_reason == "target"


def test_a_dominated_trial_is_ended(tmp_path: Path) -> None:
    code = "for step in range(5, 100, 5): say(step, val_loss=1.0)\ntime.sleep(1000)"
    of = pack(tmp_path, code, known=(20, 30), keep=2)
    _, outcome = ended(of, tmp_path)
    assert (outcome.status, outcome.stop_reason, outcome.steps_run) == (
        *("INCOMPLETE", "dominated"),
        30,
    )


def test_a_tie_with_the_last_of_those_kept_is_a_hit(tmp_path: Path) -> None:
    of = pack(tmp_path, "say(10, val_loss=1); say(30, val_loss=0)", known=(20, 30), keep=2)
    _, outcome = ended(of, tmp_path)
    assert (outcome.stop_reason, outcome.steps_to_target) == ("target", 30)


@pytest.mark.parametrize("last", ["say(105, val_loss=0.1)", "say(101, lr=1)"])
def test_over_budget_it_is_ended_and_nothing_counts(tmp_path: Path, last: str) -> None:
    code = f"say(45, val_loss=1); say(90, val_loss=0.9); {last}; time.sleep(1000)"
    measured, outcome = ended(pack(tmp_path, code), tmp_path)
    assert [m.step for m in measured] == [45, 90]
    assert (outcome.stop_reason, outcome.steps_to_target) == ("budget", None)
    assert outcome.steps_run == 100


def test_reports_of_one_step_are_one_measurement(tmp_path: Path) -> None:
    code = """
    say(10, loss=2.0); say(10, val_loss=1.0); say(12, loss=1.5); say(20, val_loss=0.9, lr=0.1)
    say(0, val_loss=0.0); say(20, val_loss=0.1); say(60, val_loss=0.2)
    """
    measured, outcome = ended(pack(tmp_path, code), tmp_path)
    assert [(m.step, dict(m.metrics)) for m in measured] == [
        (10, {"loss": 2.0, "val_loss": 1.0}),
        (20, {"val_loss": 0.9, "lr": 0.1}),
        (60, {"val_loss": 0.2}),
    ]
    assert (outcome.steps_to_target, outcome.last_miss) == (60, 20)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "say(10, val_loss=1); sys.exit('no data left')",
            "ended after step 10 of 100: exit status 1: no data left",
        ),
        ("say(10, val_loss=1)", "ended after step 10 of 100: exit status 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "before its first report: signal 9 (SIGKILL)"),
        ("pass", 'exit status 0; it reports by lines such as {"step": 1, "val_loss": 0.5}'),
        ("say(100, loss=1)", "it has reported no val_loss: did you mean 'loss'?"),
    ],
)
def test_a_program_that_ends_where_it_should_not(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        trained(pack(tmp_path, code), tmp_path)
    *others, output, last = str(error.value).splitlines()
    assert last.startswith("train.py ended ")
    assert message in last
    assert output == f"(its output: {tmp_path}/programs/trial/stdout.log)"
    assert others == (["no data left"] if "no data" in code else [])


def test_two_metrics_that_are_one_are_refused(tmp_path: Path) -> None:
    code = "say(1, **{'val/loss': 1, 'val_loss': 2}); time.sleep(1000)"
    with pytest.raises(ExperimentError, match="which are one name here"):
        trained(pack(tmp_path, code), tmp_path)


def test_the_words_of_a_trial(tmp_path: Path) -> None:
    code = "say(1, val_loss=0); open('words', 'w').write('\\n'.join(sys.argv[1:]))"
    of = pack(
        tmp_path,
        code,
        *("{budget}", "{seed}", "{folder}", "--lr={learning_rate}", "{flag}", "a {b", "{devices}"),
        "{per_device}x{accumulate}",
        metaparameters={"learning_rate": 1e-5, "flag": True, "accumulate": 4},
    )
    trained(of, tmp_path)
    folder = str(tmp_path / "programs" / "trial")
    words = (tmp_path / "words").read_text().splitlines()
    seed = str((2**40 + 7) % 2**31)
    expected = ["64", "100", seed, folder, "--lr=1e-05", "True", "a {b", "1", "16x4"]
    assert words == expected


def test_reports_in_a_file(tmp_path: Path) -> None:
    code = """
    say(5, val_loss=0.0)
    with open(sys.argv[2] + "/log.jsonl", "w") as log:
        log.write('{"step": 10, "val_loss": 1.0}\\n{"step": 20, "val_loss": 0.0}\\n')
    """
    of = pack(tmp_path, code, "{folder}", reports="{folder}/log.jsonl")
    measured, outcome = ended(of, tmp_path)
    assert [m.step for m in measured] == [10, 20]
    assert outcome.steps_to_target == 20


WORKER = """
import sys
from pathlib import Path
from experiments.programs import process as module
module.GRACE_SECONDS = 1.5
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
code += "open('pid', 'w').write(str(os.getpid())); print('{\\"step\\": 1}'); time.sleep(1000)"
process = module.Process([sys.executable, "-c", code], folder=folder, work=sys.argv[2])
while not process.reports(1.0):
    pass
print("runs", flush=True)
sys.stdin.read()
"""


def test_a_trial_waits_for_the_program_of_a_dead_worker(tmp_path: Path) -> None:
    folder = tmp_path / "programs" / "trial"
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"runs\n"
        worker.kill()
    code = """
    pid = open("pid").read()
    say(10, val_loss=0.0, alive=float(os.path.exists(f"/proc/{pid}")))
    """
    measured, _ = trained(pack(tmp_path, code), tmp_path)
    assert [dict(m.metrics) for m in measured] == [{"val_loss": 0.0, "alive": 0.0}]


def test_a_stop_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhere('pid', '.')\nsay(1)\ntime.sleep(1000)"
    )
    of = pack(tmp_path, code)
    asked = iter([False, False, True, True])
    measured, outcome = trained(of, tmp_path, lambda: next(asked, True))
    assert (measured, outcome) == ([], None)
    for pid in re.findall(r"\d+", (tmp_path / "pid").read_text()):
        assert not processes.alive(processes.identify(int(pid)))


def test_a_pack_has_one_trial(tmp_path: Path) -> None:
    of = pack(tmp_path, "pass")
    training = ProgramTraining(of, folder=str(tmp_path))
    with pytest.raises(ValueError, match="one trial, not 2"):
        training.add(of.trials)
    with pytest.raises(ValueError, match="too many"):
        ProgramTraining(replace(of, trials=of.trials * 2), folder=str(tmp_path))


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HANG_SECONDS", 0.5)
    monkeypatch.setattr(process, "HANG_INTERVALS", 3)
    code = """
    for step in range(1, 4):
        say(step, val_loss=1.0)
        time.sleep(0.4)
    print("waits for another", file=sys.stderr, flush=True)
    time.sleep(600)
    """
    of = pack(tmp_path, code)
    with pytest.raises(ProgramError, match=r"waits for another\n.*train\.py hung after step 3: no"):
        trained(of, tmp_path)
    # How often it reports is not known yet.
    rare = "say(0, val_loss=1.0); time.sleep(0.2); say(0, lr=1.0); time.sleep(1.5)"
    measured, _ = trained(pack(tmp_path, f"{rare}; say(9, val_loss=0.1)"), tmp_path)
    assert [m.step for m in measured] == [9]
