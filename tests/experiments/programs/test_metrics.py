"""Where programs report: what is read of CSV files, of TensorBoard's, and of printed lines."""

from __future__ import annotations

import math
import re
from contextlib import closing
from pathlib import Path

import pytest

from experiments.errors import ExperimentError, ProgramError
from experiments.programs.metrics import Metrics, Source
from experiments.programs.reports import Report
from tests.experiments.programs.scripted import ended, pack, trained

Seen = list[tuple[int, dict[str, float]]]


def seen(reports: list[Report]) -> Seen:
    return [(report.step, dict(report.metrics)) for report in reports]


def of_file(folder: Path, metrics: str) -> Source:
    (_, source) = Metrics(metrics).sources(folder / "reports.jsonl", folder)
    return source


def test_rows_of_a_csv_file_are_followed(tmp_path: Path) -> None:
    source = of_file(tmp_path, "{folder}/log.csv")
    assert [*source.more()] == []
    log = tmp_path / "log.csv"
    log.write_text('step,val/loss,"of, two"\n1,')
    assert [*source.more()] == []
    log.write_text('step,val/loss,"of, two"\n1,0.5,7\n2,,nan\n3,1e-')
    first, second = seen([*source.more()])
    assert first == (1, {"val_loss": 0.5, "of__two": 7.0})
    assert second[0] == 2
    assert [*second[1]] == ["of__two"]
    assert math.isnan(second[1]["of__two"])
    log.write_text('step,val/loss,"of, two"\n1,0.5,7\n2,,nan\n3,1e-3,')
    assert [*source.more()] == []
    assert seen([*source.more(ended=True)]) == [(3, {"val_loss": 0.001})]


def test_a_csv_file_with_another_header_is_read_again(tmp_path: Path) -> None:
    source = of_file(tmp_path, "{folder}/version_*/metrics.csv")
    log = tmp_path / "version_0" / "metrics.csv"
    log.parent.mkdir()
    log.write_text("epoch,step,train_loss\n0,0,2.0\n0,9,1.0\n")
    # Lightning counts from 0.
    assert seen([*source.more()]) == [
        (1, {"epoch": 0.0, "train_loss": 2.0}),
        (10, {"epoch": 0.0, "train_loss": 1.0}),
    ]
    log.write_text("epoch,step,train_loss,val_loss\n0,0,2.0,\n0,9,1.0,\n0,19,,0.5\n")
    assert [report.step for report in source.more()] == [1, 10, 20]
    # A run that goes on has a version of its own.
    again = tmp_path / "version_1" / "metrics.csv"
    again.parent.mkdir()
    again.write_text("epoch,step,val_loss\n1,29,0.25\n")
    assert seen([*source.more()]) == [(30, {"epoch": 1.0, "val_loss": 0.25})]


def test_event_files_of_tensorboard_are_read(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboardX")
    source = of_file(tmp_path, "{folder}/tb/")
    with closing(tensorboard.SummaryWriter(str(tmp_path / "tb" / "first"))) as writer:
        writer.add_scalar("val/loss", 0.5, 10)
        writer.add_scalar("val/top1", 0.25, 10)
        writer.add_text("notes", "no number", 15)
    assert seen([*source.more()]) == [(10, {"val_loss": 0.5}), (10, {"val_top1": 0.25})]
    assert [*source.more()] == []
    with closing(tensorboard.SummaryWriter(str(tmp_path / "tb" / "second"))) as writer:
        writer.add_scalar("val/loss", 0.125, 20)
        writer.add_scalar("val/loss", 0.25, 30)
    with closing(tensorboard.SummaryWriter(str(tmp_path / "tb" / "a_train"))) as writer:
        writer.add_scalar("loss", 0.25, 25)  # a later step must not end the trial before 20
    expected = [(20, {"val_loss": 0.125}), (25, {"loss": 0.25}), (30, {"val_loss": 0.25})]
    assert seen([*source.more()]) == expected


def test_half_an_event_waits_for_its_rest(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboardX")
    with closing(tensorboard.SummaryWriter(str(tmp_path / "whole"))) as writer:
        writer.add_scalar("loss", 0.5, 10)
        writer.add_scalar("loss", 0.25, 20)
    (whole,) = (tmp_path / "whole").iterdir()
    data = whole.read_bytes()
    (tmp_path / "part").mkdir()
    file, source = tmp_path / "part" / "events.out.tfevents.1", of_file(tmp_path, "{folder}/part/")
    steps = []
    for end in range(len(data) + 1):
        file.write_bytes(data[:end])
        steps += [report.step for report in source.more()]
    assert steps == [10, 20]


def test_what_is_no_event_is_said(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboardX")
    with closing(tensorboard.SummaryWriter(str(tmp_path))) as writer:
        writer.add_scalar("loss", 0.5, 10)
    (file,) = tmp_path.glob("*tfevents*")
    data = bytearray(file.read_bytes())
    data[12] = 0xFF
    file.write_bytes(data)
    with pytest.raises(ExperimentError, match="holds what is no event of TensorBoard"):
        list(of_file(tmp_path, "{folder}/").more())


NANOGPT = """
print("number of parameters: 10.65M")
print("step 0: train loss 4.2221, val loss 4.2306")
print("iter 0: loss 4.2244, time 36.31ms, mfu -100.00%")
print("step 10: train loss 2.5, val loss 2.5")
print("step 20: train loss 0.375, val loss 0.25")
"""
TORCHTITAN = """
print("\\x1b[32m[titan] 2025-01-01 - root - INFO - \\x1b[31mstep:  1  \\x1b[32mloss:  8.1  "
      "\\x1b[33mmemory:  0.5GiB\\x1b[39m", file=sys.stderr)
print("[titan] 2025-01-01 - root - INFO - validate step: 10  loss:  2.5  memory:  0.5GiB",
      file=sys.stderr)
print("[titan] 2025-01-01 - root - INFO - validate step: 20  loss:  0.25", file=sys.stderr)
"""
MEGATRON = """
print(" [2025-01-01 10:00:00] iteration       10/     100 | consumed samples:          640 | "
      "elapsed time per iteration (ms): 3000.1 | learning rate: 1.0E-04 | "
      "lm loss: 2.500000E+00 | val loss: 2.5 |")
print(" [2025-01-01 10:00:30] iteration       20/     100 | consumed samples:         1280 | "
      "lm loss: 2.000000E+00 | val loss: 0.25 |")
"""
BAR = """
for step in range(1, 21):
    loss = 2.5 if step < 20 else 0.25
    sys.stderr.write(f"\\r{5 * step:3d}%|##  | {step}/100 [00:01<00:09, 9it/s, val_loss={loss}]")
"""
OWN = """
print("epoch 1 | updates 10 | dev 2.5000 | 3 s")
print("epoch 2 | updates 20 | dev 0.2500 | 3 s")
"""


@pytest.mark.parametrize(
    ("metrics", "code"),
    [
        ("nanogpt", NANOGPT),
        ("torchtitan", TORCHTITAN),
        ("megatron", MEGATRON),
        (r"updates (?P<step>\d+) \| dev (?P<val_loss>\S+)", OWN),
        (r"\| (?P<step>\d*0)/\d+ .*val_loss=(?P<val_loss>[\d.]+)", BAR),
    ],
)
def test_printed_lines_are_measurements(tmp_path: Path, metrics: str, code: str) -> None:
    code += """
time.sleep(60)
"""
    measured, outcome = ended(pack(tmp_path, code, reports=metrics), tmp_path)
    assert [m.metrics["val_loss"] for m in measured] == [2.5, 0.25]
    assert outcome.steps_to_target == 20
    assert outcome.last_miss == 10


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (r"step (?P<step>\d+) loss (?P<val_loss>\S+)", "it reports by step (?P<step>"),
        ("{folder}/*.csv", "by {folder}/*.csv, which begins with 'epoch,val_loss', where a report"),
        ("{folder}/a.jsonl", "it reports by {folder}/a.jsonl, and there is no such file"),
    ],
)
def test_a_program_says_what_it_was_to_report_by(tmp_path: Path, metrics: str, said: str) -> None:
    code = "print('step 3'); os.chdir(sys.argv[2]); os.mkdir('A.csv'); open('a.csv', 'w').write("
    code += "'epoch,val_loss\\n1,2')"
    with pytest.raises(ProgramError, match=re.escape(said)):
        trained(pack(tmp_path, code, "{folder}", reports=metrics), tmp_path)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("log.jsonl", "is not a file below {folder}"),
        ("{folder}log.jsonl", "is not a file below {folder}"),
        ("{folder}/{seed}.jsonl", "is not a file below {folder}"),
        ("{folder}/../log.jsonl", "is not a file below {folder}"),
        ("{folder}", "is not a file below {folder}"),
        ("nanoGPT", "is not a file below {folder}"),
        (r"step (?P<step>\d+)", "names no metric beside step"),
        (r"(?u)step (?P<step>\d+) (?P<loss>\d+)", "is no regular expression"),
        (r"step (?P<step>\d+", "is no regular expression: missing )"),
    ],
)
def test_what_the_key_cannot_be(metrics: str, message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        Metrics(metrics).check()
    assert message in str(error.value)
