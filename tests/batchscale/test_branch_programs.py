"""``batchscale branch`` of programs: from copies of a trial's folder, by ``resume``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import batchscale as bs
from analysis.branches.evaluated import Run, losses
from batchscale.output.errors import CommandError
from experiments.errors import ExperimentError
from experiments.programs import branches as module
from experiments.scheduling.messages import ignore
from results.errors import ClearError
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

PROGRAM = """\
import argparse, json, os, random, time
parser = argparse.ArgumentParser()
for name, kind in (("batch", int), ("lr", float), ("steps", int), ("seed", int), ("out", str)):
    parser.add_argument("--" + name, type=kind)
parser.add_argument("--resume", action="store_true")
given = parser.parse_args()
saved = os.path.join(given.out, "checkpoint.json")
draw = random.Random(given.seed)
step, examples, w = 0, 0, [2.0] * 4
if given.resume:
    step, examples, w, seed, state = json.load(open(saved))
    if seed == given.seed:
        draw.setstate((state[0], tuple(state[1]), state[2]))
while step < given.steps:
    noise = [sum(draw.gauss(0, 4) for _ in range(given.batch)) / given.batch for _ in w]
    w = [x - given.lr * (x + y) for x, y in zip(w, noise)]
    step += 1
    examples += given.batch
    if step % 10 == 0:
        with open(saved + ".tmp", "w") as stream:
            json.dump([step, examples, w, given.seed, draw.getstate()], stream)
        os.replace(stream.name, saved)
        loss = 1 + sum(x * x for x in w)
        said = dict(step=step, val_loss=loss, examples=examples, lr=given.lr)
        print(json.dumps(said), flush=True)
        held = os.path.join(given.out, f"held-{step}")
        if str(step) in os.environ["HOLD"].split() and not os.path.exists(held):
            open(held, "w").close()
            time.sleep(60)  # until it is ended
"""
FILE: dict[str, Any] = {
    "name": "nano",
    "program": "python train.py --batch={batch_size} --lr={learning_rate} --steps={budget} "
    "--seed={seed} --out={folder}",
    "resume": "--resume",
    "grid": {"batch_size": 4},
    "search": {"learning_rate": 0.02},
    "target": "val_loss < 2",
    "stop_at_target": False,
    "trials": 1,
    "budget": "300 steps",
}
RENAMED = {"program": FILE["program"].replace("learning_rate", "rate"), "search": {"rate": 0.1}}
LOG = "print(json.dumps(said), file=open(os.path.join(given.out, 'log.jsonl'), 'a'))"
GIVEN: dict[str, Any] = {"at": [40], "by": [2, 4], "window": "80 steps", "rule": "linear"}
FUNCTION = """\
import json, os, time
def train(config, report):
    saved, step, examples = os.path.join(config["folder"], "checkpoint.json"), 0, 0
    if config.get("resume"):
        step, examples = json.load(open(saved))
    while step < config["budget"]:
        step, examples = step + 1, examples + config["batch_size"]
        if step % 10 == 0:
            with open(saved + ".tmp", "w") as stream:
                json.dump([step, examples], stream)
            os.replace(stream.name, saved)
            if report(step=step, val_loss=1 + 1 / examples, tokens=32 * examples):
                return
            while step == 40 and os.environ["HOLD"]:
                if report(step=step, val_loss=1):
                    return
                time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLD", "40")


def swept(code: str = PROGRAM, **changes: Any) -> None:
    """Sweep it into the folder ``runs``."""
    Path("train.py").write_text(code)
    file = {key: value for key, value in {**FILE, **changes}.items() if value is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLD", "")
        bs.sweep(file, results="runs", address="none", observer=ignore)


def branched(**changes: Any) -> Any:
    return bs.branch("nano", **{**GIVEN, **changes}, results="runs")


def test_branches_of_a_program_go_on_where_they_were_stopped(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one checkpoint; what is recorded is not trained again."""
    swept()
    texts: list[str] = []

    def observed(text: str) -> None:
        texts.append(text)
        if len(texts) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        branched(seeds=1, observer=observed)
    assert texts == [f"from step 40 at batch size {size}: 1 seed" for size in (8, 16)]
    monkeypatch.setattr(module.ProgramBranches, "_train_to", None)
    made = branched(seeds=1, observer=observed)
    assert texts[2:] == ["from step 40 at batch size 4: 1 seed"]
    assert [(point.step, point.window) for point in made.points] == [(40, 40), (40, 80)]
    made = branched(seeds=2, observer=observed)
    assert len(texts) == 6
    assert abs(made.points[-1].comparisons[0].excess.value) < 0.3
    rows = bs.open("runs").trials.set_index("trial")
    (parent,) = rows.index[rows["role"] == "search"]
    seed = rows["seed"][parent]
    rows = rows[rows["role"] == "branch"]
    assert {*rows["branch_of"], *rows["examples_run"]} == {parent, 4 * 120}
    values: dict[str, dict[int, dict[str, float]]] = {parent: {}}
    for row in bs.open("runs").measurements.to_dict("records"):
        values.setdefault(row["trial"], {})[row["step"]] = said = json.loads(row["metrics"])
        assert row["trial"] == parent or row["examples"] == said["examples"]
    for row in rows.reset_index().to_dict("records"):
        sizes, name = json.loads(row["batch_sizes"]), row["trial"]
        k = sizes["sizes"][1] // 4
        assert sizes == {"schedule_steps": 300, "sizes": [4, 4 * k], "starts": [0, 40]}
        assert [*values[name]] == [*range(50, 41 + 80 // k, 10)]
        assert all(said["lr"] == 0.02 * k for said in values[name].values())
        same = values[name].items() <= values[parent].items()  # to the last bit
        assert same == (k == 1 and row["seed"] == seed)
    assert len([*Path("runs/programs").iterdir()]) == 2  # the trial's, and a checkpoint
    given = ["branch", "nano", "--at", 40, "--by", "2,4", "--window", "80 steps"]
    given += ["--rule", "linear", "--results", "runs"]
    text = command(*given, "--seeds", 2, "--tolerance", 9).out
    assert "a ramp for the program to take, of the same budget (300 steps of batch size 4)" in text
    assert "\n  4× from step 40\n" in text
    rmtree(next(Path("runs/programs").glob("*-at-40")))
    clear(command(*given), "the checkpoint of the recorded branches is gone", hint="another step")


@pytest.mark.parametrize(
    ("old", "new", "file", "given", "message"),
    [
        ("", "", {"resume": None}, {}, "train.py has no resume, by which a branch would go on"),
        ("examples=examples, ", "", {}, {}, "reports neither examples nor tokens"),
        ("+= given.batch", "+= step", {}, {}, "reports examples that do not grow by one number"),
        ("", "", {}, {"rule": None}, "no rule of the learning rate is usual for optimizer program"),
        ("", "", {}, {"window": "9 steps"}, "evaluates each 10 steps, the window is 9"),
        ("", "", {}, {"window": "290 steps"}, "from step 40 a window of 290 steps is not within"),
        ("", "", {}, {"metric": "loss"}, "no metric 'loss' was measured"),
        ("", "", RENAMED, {}, "of train.py has no {learning_rate}, which the linear rule sets"),
    ],
)
def test_what_is_refused_before_anything_is_trained(
    old: str, new: str, file: Any, given: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(PROGRAM.replace(old, new), **file)
    monkeypatch.setattr(module.ProgramBranches, "_train_to", None)
    with pytest.raises(ClearError) as raised:
        branched(**given)
    assert message in str(raised.value)
    assert raised.value.hint


def test_a_program_that_a_record_names_is_run_where_it_was_swept_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    swept()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(module.ProgramBranches, "_train_to", None)
    with pytest.raises(CommandError, match=r"train\.py is not run: the record of trial"):
        branched()


@pytest.mark.parametrize(
    ("old", "new", "given", "message"),
    [
        ("draw.set", "given.batch = 4; draw.set", {}, "reads 4 examples a step, not 8: it"),
        ("+= given.batch", "= step * given.batch", {}, "by that it began at step 0, and its check"),
        ("if given.resume", "if given.out == ''", {}, "by that it began at step 0, and its check"),
        ("step, examples, w, seed", "step, _, w, seed", {}, "by that it began at step 80, and"),
        ("if seed == given.seed", "if True", {"seeds": 2}, "branches of two seeds at 2 times the"),
        ("lr=given.lr", "lr=0.1", {}, "lr at 2 times the batch size is 0.1 from step 40 on, and"),
        ("open(saved))", "open('other'))", {}, "train.py ended before its first report: exit"),
        (
            "",
            "",
            {"window": "30 steps", "by": [4]},
            "have val_loss after the same examples nowhere",
        ),
        ("[x - g", "[1e400 if given.resume else x - g", {}, "diverged before its first report"),
    ],
)
def test_what_the_reports_of_a_branch_do_not_allow(
    old: str, new: str, given: Any, message: str
) -> None:
    swept(PROGRAM.replace(old, new))
    with pytest.raises(ClearError) as raised:
        branched(**{"seeds": 1, "by": [2], **given})
    assert message in str(raised.value)
    assert raised.value.hint


def test_one_that_is_not_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    swept()
    monkeypatch.setattr(
        module.ProgramTraining, "run", lambda self, _: iter(setattr(self, "step", 121) or [])
    )
    with pytest.raises(ExperimentError, match="was at step 121 before it was ended near step 40"):
        branched()


def test_where_it_began_is_where_its_checkpoint_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what it reports in has what came after."""
    code = PROGRAM.replace("print(json.dumps(said), flush=True)", LOG)
    code = code.replace("stream.name, saved", "stream.name, saved + '.no' * (step % 20 > 0)")
    swept(code, metrics="{folder}/log.jsonl")
    monkeypatch.setenv("HOLD", "50 130")
    made = branched(at=[50, 130], seeds=1, by=[2])
    points = [(step, part) for step in (40, 120) for part in (20, 40, 60, 80)]
    assert [(point.step, point.window) for point in made.points] == points
    with pytest.raises(ExperimentError, match="from step 45 began at the checkpoint of another"):
        branched(at=[45, 50], seeds=1, by=[2])


def test_a_function_that_resumes() -> None:
    swept(FUNCTION, program=None, search={}, workload="train.py:train", resume="resume=True")
    made = branched(seeds=1, by=[2], rule="none")
    assert [(point.step, point.window) for point in made.points] == [
        (40, part) for part in (20, 40, 60, 80)
    ]
    assert [point.comparisons[0].excess.value for point in made.points] == [0.0] * 4


def test_one_that_diverges_is_above_where_it_was_not_evaluated() -> None:
    runs = [
        Run(times=1, began=40, measured={s: {"loss": 1.0} for s in (10, 20, 40)}, diverged=False),
        Run(times=4, began=40, measured={40: {"loss": 2.0}}, diverged=False),
        Run(times=2, began=40, measured={20: {"loss": 2.0}}, diverged=True),
    ]
    (made,) = losses(runs, "loss", 40)
    assert (made.step, made.window) == (40, 40)
    assert made.by_times == {1: [1.0], 2: [math.inf], 4: [2.0]}
