"""A trial of a program that goes on by `resume`, from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.errors import ProgramError
from experiments.plan import Measurement, Pack
from experiments.programs.training import ProgramTraining
from tests.experiments.programs.scripted import ended, pack, trained

RESUMABLE = """
folder = sys.argv[2]
checkpoint = os.path.join(folder, "checkpoint")
step = 0
if "--resume" in sys.argv:
    step = int(open(checkpoint).read())
here("starts", os.path.dirname(os.path.dirname(folder)))
while step < 100:
    step += 1
    if step % 10 == 0:
        say(step, val_loss=1 - step / 100)
    with open(checkpoint + ".tmp", "w") as stream:
        stream.write(str(step))
    os.replace(stream.name, checkpoint)
    time.sleep(0.01)
"""


def stopped_after(
    tmp_path: Path, reports: int, code: str = RESUMABLE, metrics: str | None = None
) -> tuple[int, ...]:
    """Stop a resumable trial once it has so many measurements; the steps of these."""
    of = pack(tmp_path, code, "{folder}", resume="--resume", reports=metrics)
    training = ProgramTraining(of, folder=str(tmp_path / "programs"))
    steps: list[int] = []

    def enough() -> bool:
        return len(steps) >= reports

    for events in training.run(enough):
        steps.extend(event.step for event in events if isinstance(event, Measurement))
    assert training.active == ("trial",)
    return tuple(steps)


def resumable(folder: Path, **changes: Any) -> Pack:
    return pack(folder, RESUMABLE, "{folder}", resume="--resume", **changes)


def test_a_trial_goes_on_from_its_folder(tmp_path: Path) -> None:
    before = stopped_after(tmp_path, 2)
    assert before[:2] == (10, 20)
    measured, outcome = ended(resumable(tmp_path), tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]
    seconds = [m.train_seconds for m in measured]
    assert seconds == sorted(seconds)
    assert (outcome.steps_to_target, outcome.last_miss) == (60, 50)
    assert len((tmp_path / "starts").read_text().split()) == 2


def test_without_resume_it_begins_again(tmp_path: Path) -> None:
    stopped_after(tmp_path, 2)
    of = pack(tmp_path, RESUMABLE, "{folder}")
    measured, _ = trained(of, tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]


def test_what_a_file_has_of_before_is_not_reported_anew(tmp_path: Path) -> None:
    code = f"""
def say(step, **metrics):
    with open(sys.argv[2] + "/log.jsonl", "a") as stream:
        stream.write(json.dumps({{"step": step, **metrics}}) + "\\n")
{RESUMABLE}"""
    metrics = "{folder}/log.jsonl"
    stopped_after(tmp_path, 2, code, metrics)
    checkpoint = tmp_path / "programs" / "trial" / "checkpoint"
    step = checkpoint.read_text()
    checkpoint.write_text("not a number")
    of = pack(tmp_path, code, "{folder}", resume="--resume", reports=metrics)
    with pytest.raises(ProgramError, match=r"could not go on by --resume"):
        trained(of, tmp_path)
    checkpoint.write_text(step)
    measured, _ = trained(of, tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("recorded", [True, False])
def test_where_it_cannot_go_on_its_folder_is_kept(tmp_path: Path, recorded: bool) -> None:
    """Also if nothing was measured before; the next run goes on."""
    stopped_after(tmp_path, 2)
    checkpoint = tmp_path / "programs" / "trial" / "checkpoint"
    step = checkpoint.read_text()
    if not recorded:
        for name in ("measurements.jsonl", "reports.jsonl"):
            checkpoint.with_name(name).unlink()
    checkpoint.write_text("not a number")
    with pytest.raises(ProgramError) as raised:
        trained(resumable(tmp_path), tmp_path)
    last = str(raised.value).splitlines()[-1]
    assert last.startswith("train.py could not go on by --resume: exit status 1: ValueError: inv")
    assert last.endswith(f"the next sweep tries again; anew: rm -r {checkpoint.parent}")
    assert checkpoint.read_text() == "not a number"
    checkpoint.write_text(step)
    measured, _ = ended(resumable(tmp_path), tmp_path)
    assert [m.step for m in measured][-1] == 60
    assert len(measured) == (6 if recorded else 6 - int(step) // 10)


def test_what_has_neither_reported_nor_written_begins_again(tmp_path: Path) -> None:
    code = """
    os.mkdir(sys.argv[2] + "/checkpoints")
    sys.exit("out of memory")
    """
    of = pack(tmp_path, code, "{folder}", resume="--resume")
    with pytest.raises(ProgramError, match=r"out of memory\n[^\n]*\n.*before its first report"):
        trained(of, tmp_path)
    measured, _ = trained(resumable(tmp_path), tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]


def test_one_that_had_only_to_end_gives_what_was_measured(tmp_path: Path) -> None:
    code = """
    if "--resume" not in sys.argv:
        for step in range(10, 101, 10):
            say(step, val_loss=1.0)
            time.sleep(0.6 if step == 90 else 0)
    """
    of = pack(tmp_path, code, "{folder}", resume="--resume")
    training, steps = ProgramTraining(of, folder=str(tmp_path / "programs")), list[int]()
    for events in training.run(lambda: 90 in steps):
        steps.extend(event.step for event in events if isinstance(event, Measurement))
    assert training.active
    measured, outcome = ended(of, tmp_path)
    assert [m.step for m in measured] == [*range(10, 91, 10)]
    assert outcome.stop_reason == "budget"


def test_what_an_earlier_run_has_measured_needs_no_program(tmp_path: Path) -> None:
    trained(resumable(tmp_path), tmp_path)
    _, outcome = ended(resumable(tmp_path, target="val_loss < 0.65"), tmp_path)
    assert (outcome.steps_to_target, outcome.last_miss) == (40, 30)
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_harder_target_goes_on(tmp_path: Path) -> None:
    trained(resumable(tmp_path), tmp_path)
    measured, outcome = ended(resumable(tmp_path, target="val_loss < 0.25"), tmp_path)
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert (outcome.steps_to_target, outcome.last_miss) == (80, 70)


def test_what_was_reported_while_nobody_read_it_counts(tmp_path: Path) -> None:
    stopped_after(tmp_path, 2)
    folder = tmp_path / "programs" / "trial"
    step = int((folder / "checkpoint").read_text())
    (folder / "checkpoint").write_text("75")
    lines = [f'{{"step": {s}, "val_loss": {1 - s / 100}}}' for s in range(10, 80, 10)]
    (folder / "reports.jsonl").write_text("\n".join([*lines, '{"step": 99, "val_l']))
    measured, outcome = ended(resumable(tmp_path), tmp_path)
    assert step < 60
    assert [m.step for m in measured] == [10, 20, 30, 40, 50, 60]
    assert (outcome.steps_to_target, outcome.last_miss) == (60, 50)


def test_half_a_recorded_line_is_read_from_the_reports(tmp_path: Path) -> None:
    stopped_after(tmp_path, 3)
    recorded = tmp_path / "programs" / "trial" / "measurements.jsonl"
    lines = recorded.read_text().splitlines(keepends=True)
    recorded.write_text(lines[0] + lines[1][:9])
    measured, outcome = ended(resumable(tmp_path), tmp_path)
    assert measured[0].step == 10
    assert measured[1].step == 20  # of the reports, which are kept too
    assert outcome.steps_to_target == 60
