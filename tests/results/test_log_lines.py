"""Logs of printed lines, of several programs: the same runs, and the same steps to a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import results
from results.errors import ResultsError
from results.user_tables.log import read_log
from tests.results.test_log_formats import SOME, folder, reached, some
from tests.results.test_shapes_of_tables import evaluations


def of_megatron(size: int, at: int, step: int, loss: float) -> list[str]:
    used = size if at < 20 else 4 * size
    return [
        f"[default0]: [2026-11-01 10:00:00] iteration {step:8}/  5000 | consumed samples: "
        f"{step * size:12} | elapsed time per iteration (ms): {1200 + at} | learning rate: "
        f"{1 / step:.6E} | global batch size: {used:5} | lm loss: {0.9 * loss:.6E} | grad norm: "
        "0.812 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        f" validation loss at iteration {step} on validation set | lm loss value: {loss:.8E} | lm "
        f"loss PPL: {2 * loss:.6E} |",
        f" validation loss at iteration {step} on test set | lm loss value: {0.5 * loss:.6E} |",
    ]


def of_fairseq(_: int, at: int, step: int, loss: float) -> list[str]:
    train = {"epoch": at, "update": at + 0.5, "loss": f"{0.9 * loss}", "num_updates": f"{step}"}
    valid = {"epoch": at, "valid_loss": f"{loss}", "valid_num_updates": f"{step}"}
    return [
        f"2026-11-01 10:00:00 | INFO | train_inner | {json.dumps(train)}",
        f"2026-11-01 10:00:00 | INFO | valid | {json.dumps(valid)}",
    ]


def of_modded_nanogpt(_: int, at: int, step: int, loss: float) -> list[str]:
    return [f"step:{step}/1750 val_loss:{loss:.9f} train_time:{1234 * at}ms step_avg:12.3ms"]


def of_deepspeed(_: int, at: int, step: int, loss: float) -> list[str]:
    return [
        f"steps: {step} eval_loss: {loss:.9f} iter time (s): {at}.512 samples/sec: 499.1",
        f"[2026-11-01 10:00:00,123] [INFO] [Rank 0] step={step}, skipped=0, lr=[0.1, 0.1]",
    ]


def of_maxtext(_: int, __: int, step: int, loss: float) -> list[str]:
    return [
        f"completed step: {step}, seconds: 1.2, TFLOP/s/device: 51.2, loss: {0.9 * loss:.3f}",
        f"eval metrics after step: {step}, loss={loss:.9f}, total_weights=100.0",
    ]


def of_a_loop(_: int, __: int, step: int, loss: float) -> list[str]:
    return [f"[Epoch 1] Step [{step}/5000], Loss: {0.9 * loss:.4f}, Eval Loss: {loss:.9f}\r"]


def of_neox(_: int, __: int, step: int, loss: float) -> list[str]:
    return [
        f" samples/sec: 100.1 | iteration {step:8}/  320000 | lm_loss: {0.9 * loss:.6E} |",
        f" validation results at iteration {step} | lm_loss value: {loss:.8E} | lm_loss_ppl value:",
    ]


def of_nanochat(_: int, __: int, step: int, loss: float) -> list[str]:
    return [
        f"step {step:05}/21400 (0.05%) | loss: {0.9 * loss:.6f} | grad norm: 0.1 | dt: 300.12ms | "
        "tok/sec: 1,234,567 | mfu: 45.67",
        f"Step {step:05} | Validation bpb: {loss:.9f}",
    ]


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (of_megatron, "val_lm_loss"),
        (of_fairseq, "valid_loss"),
        (of_modded_nanogpt, "val_loss"),
        (of_nanochat, "Validation_bpb"),
        (of_deepspeed, "eval_loss"),
        (of_maxtext, "eval_loss"),
        (of_a_loop, "Eval_Loss"),
        (of_neox, "val_lm_loss"),
    ],
)
def test_lines_of_other_programs(tmp_path: Path, kind: Any, metric: str) -> None:
    place = folder(tmp_path / "logs")
    for size in SOME:
        text = ["using world size: 8", "step 1: 12 files are read"]
        if kind is of_megatron:
            text += [f"  global_batch_size ............... {size}", f"  lr {'.' * 40} 0.001"]
            text += ["  seq_length ...................... 2048", "  make_vocab_size .... 128"]
        for at, (step, loss) in enumerate(evaluations(size)):
            text += kind(size, min(at, 19), step, loss)
        (place / f"bs{size}.log").write_text("\n".join(text))
    assert reached(place, f"{metric} < 1.00001") == some()
    trials = results.open(tmp_path / "imported").trials
    if kind is of_megatron:
        assert set(trials["tokens_per_example"]) == {2048}
        assert set(trials["learning_rate"]) == {0.001}
        assert set(trials["status"]) == {"COMPLETE"}


def test_a_batch_size_that_grows_in_lines_of_megatron(tmp_path: Path) -> None:
    """Lines of validation do not print it: it is that of the update before."""
    text = [line for at, look in enumerate(evaluations(64)) for line in of_megatron(64, at, *look)]
    (tmp_path / "ramp.log").write_text("\n".join(text))
    trials = results.open(tmp_path / "ramp.log").trials
    assert json.loads(trials["batch_sizes"].item())["sizes"] == [64, 256]


def test_steps_that_are_counted_in_each_epoch_are_refused(tmp_path: Path) -> None:
    lines = [f"Epoch [{e}/4], Step [{s}/9], Loss: 0.5" for e in (1, 2, 3, 4) for s in (3, 6, 9)]
    path = tmp_path / "bs64.log"
    path.write_text("\n".join(lines))
    with pytest.raises(ResultsError, match="line 4: step 3 of run bs64 begins again with epoch 2"):
        results.open(path)
    path.write_text("\n".join([*lines[:3], *lines[:3]]))  # it began again from a checkpoint
    assert results.open(path).trials["steps_run"].tolist() == [9]


def test_a_file_whose_lines_report_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("epoch one: loss 3.1\nstep 3: 12 files\n")
    with pytest.raises(ResultsError, match=r"out\.log has no line that reports a step and a metr"):
        read_log(tmp_path / "out.log")
    with pytest.raises(ResultsError, match=r"out\.log has no line that reports a step and a metr"):
        read_log(tmp_path)
