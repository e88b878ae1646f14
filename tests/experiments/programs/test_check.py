"""`batchscale check` of a program: each promise that one breaks is found."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import batchscale as bs
from batchscale.output.errors import CommandError
from experiments.config.compile import load
from experiments.programs import check, process
from experiments.training.check import Finding
from tests.experiments.programs.scripted import HEAD

GOOD = """
size, seed = int(sys.argv[1]), int(sys.argv[2])
for step in range(1, 1001):
    say(step, val_loss=1 / (step * size + seed % 7), examples=step * size)
    time.sleep(0.01)
"""
FILE = {
    "name": "scripted",
    "program": "python train.py {batch_size} {seed}",
    "grid": {"batch_size": [8, 16]},
    "target": "val_loss < 0.0001",
    "trials": 1,
    "budget": "1000 steps",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    monkeypatch.chdir(tmp_path)


def found(code: str, seconds: float = 8.0, **changes: str) -> dict[str, Finding]:
    Path("train.py").write_text(HEAD + textwrap.dedent(code))
    findings = check.check(load({**FILE, **changes}).studies(), seconds=seconds, observer=print)
    return {finding.check: finding for finding in findings}


def test_a_program_that_keeps_it() -> None:
    findings = found(GOOD)
    assert [*findings] == ["reports", "steps", "metric", "SIGTERM", "seed", "batch size"]
    assert all(finding.passed for finding in findings.values())
    assert findings["batch size"].finding == "examples a step at batch sizes 8 and 16: 8 and 16"


@pytest.mark.parametrize(
    ("old", "new", "which", "passed", "text"),
    [
        ("say(step", "print(step); (lambda *_, **__: 0)(step", "reports", False, "in 5 s, and it"),
        ("for step", "sys.exit('no data')\nfor step", "reports", False, "its last line: no data"),
        ("    say(", "    sys.exit(print(9))\n    say(", "reports", False, "line: 9; a report is"),
        ("say(step", "say(1001 - step", "steps", False, "from 1,000 to 99"),
        ("val_loss=", "valid_loss=", "metric", False, "no val_loss in 5 s: did you mean"),
        ("val_loss=1", "val_loss='1', x=1", "metric", False, "was '1', which is no number"),
        ("val_loss=1", "val_loss=float('nan') if step % 4 else 1", "metric", False, "val_loss is"),
        ("examples=", "loss=1e999 if step < 3 else 1, examples=", "metric", False, "loss is not"),
        ("for step", "signal.signal(15, signal.SIG_IGN)\nfor step", "SIGTERM", False, "by SIGKILL"),
        (
            "    time.sleep",
            "    if step == 3: os.kill(os.getpid(), signal.SIGSEGV)\n    time.sleep",
            *("end", False, "it ended after step 3 of 1,000: signal 11 (SIGSEGV)"),
        ),
        (
            "    time.sleep",
            "    {}['lr']\n    time.sleep",
            *("end", False, "after step 1 of 1,000: exit status 1; its last line: KeyError: 'lr'"),
        ),
        ("1, 1001", "1, 4", "end", False, "after step 3 of 1,000: exit status 0"),
        (
            "size, seed =",
            "if sys.argv[1] == '16': say(2), sys.exit('too large')\nsize, seed =",
            *("end", False, "at batch size 16 after step 2 of 1,000: exit status 1; its last"),
        ),
        (
            "size, seed =",
            "if sys.argv[1] == '16': time.sleep(60)\nsize, seed =",
            *("metric", False, "no val_loss at batch size 16 in 5 s, and it was still running"),
        ),
        ("seed % 7", "os.getpid()", "seed", None, "cannot be repeated exactly"),
        ("examples=step * size", "examples=step * 8", "batch size", False, "8 and 8"),
        ("examples=step * size", "x=1", "batch size", None, "neither examples nor tokens"),
        ("examples=step * size", "val_samples=9", "batch size", None, "neither examples nor"),
        ("examples=", "val_samples=9, examples=", "batch size", True, "examples a step at batch"),
        ("size, seed = int(sys.argv[1])", "size, seed = 8", "batch size", False, "8 and 8"),
    ],
)
def test_what_breaks_it_is_found(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, which: str, passed: bool | None, text: str
) -> None:
    if "in 5 s" in text:
        monkeypatch.setattr(check, "PATIENCE_SECONDS", 5.0)
    assert GOOD.count(old) == 1
    finding = found(GOOD.replace(old, new))[which]
    assert finding.passed is passed
    assert text in finding.finding


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1, 1001", "1, 1001, 400"),  # the next report is beyond the budget
        ("val_loss=", "val_loss=0 if step == 3 else "),  # it reaches the target
        ("val_loss=", "val_loss=math.nan if step == 3 else "),
    ],
)
def test_an_end_that_a_sweep_allows(old: str, new: str) -> None:
    code = GOOD.replace(old, new).replace("    time", "    if step == 3: sys.exit(1)\n    time")
    findings = found(f"import math\n{code}" if new[0] == "v" else code)
    assert all(finding.passed is not False for finding in findings.values())
    assert "it had ended before: exit status" in findings["SIGTERM"].finding


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for step", "time.sleep(1)\nfor step"),
        ("    say(step", "    if step % 100 == 0: say(step"),
        ("    say(", "    say(step, loss=1.0) if step % 100 else say("),
    ],
)
def test_a_program_may_start_slowly_or_measure_seldom(
    capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert all(each.passed for each in found(GOOD.replace(old, new), seconds=1.0).values())
    assert ("no val_loss yet, only loss" in capsys.readouterr().out) == ("loss=1.0" in new)


def test_of_several_files_one_may_be_behind() -> None:
    code = """
    logs = [open(f"{sys.argv[3]}/{name}.jsonl", "a", buffering=1) for name in ("a", "b")]
    for step in range(10, 1001, 10):
        print(json.dumps({"step": step, "loss": 1.0}), file=logs[0])
        time.sleep(0.2)
        print(json.dumps({"step": step - 9, "val_loss": 1 / step}), file=logs[1])
    """
    program = f"{FILE['program']} {{folder}}"
    findings = found(code, seconds=1.0, program=program, metrics="{folder}/*.jsonl")
    assert findings["steps"].passed


def test_the_same_metric_at_two_batch_sizes_is_found() -> None:
    code = GOOD.replace("examples=step * size", "x=1").replace("int(sys.argv[1])", "8")
    finding = found(code)["batch size"]
    assert finding.passed is False
    assert "to the last digit: it does not use it" in finding.finding


def test_an_experiment_of_a_workload_is_not_checked(tmp_path: Path) -> None:
    text = "workload: digits-softmax\ngrid: {batch_size: 8, optimizer: sgd}\nbudget: 9 steps\n"
    (tmp_path / "mine.yaml").write_text(text + "trials: 1\nsearch: {learning_rate: 0.1}\n")
    with pytest.raises(CommandError, match=r"mine\.yaml is an experiment file"):
        bs.check("mine.yaml")
