"""Logs as further tools write them, and compressed ones: the same runs and steps to a target."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tensorboardX import SummaryWriter

import results
from results.errors import ResultsError
from results.user_tables.log import read_log
from tests.results.test_log_formats import SOME, folder, lines, printed, reached, some
from tests.results.test_shapes_of_tables import TRUE, evaluations


def rows_of(size: int) -> list[dict[str, Any]]:
    return [{"step": step, "val_loss": loss} for step, loss in evaluations(size)]


# Compressed files.


def compressed(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_compressed_files_of_one_run_each(tmp_path: Path, suffix: str) -> None:
    place = folder(tmp_path / "logs")
    for size in SOME:
        rows = rows_of(size)
        text = lines(rows) if suffix == "jsonl" else pd.DataFrame(rows).to_csv(index=False)
        (place / f"bs={size},lr=0.1.{suffix}").write_text(text)
        compressed(place / f"bs={size},lr=0.1.{suffix}")
    assert reached(place) == some()
    assert set(results.open(tmp_path / "imported").trials["learning_rate"]) == {0.1}


def test_a_compressed_table_has_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(b"batch_size,steps\n8,100\n16,60\n"))
    assert set(results.open(path).trials["experiment"]) == {"mine"}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ResultsError, match=r"mine\.csv\.gz is not a whole file of gzip"):
        results.open(path)


def test_compressed_printed_lines(tmp_path: Path) -> None:
    for path in printed(tmp_path, "torchtitan"):
        compressed(path)
    assert reached(tmp_path / "logs") == some()


# JSON.


def as_json(kind: str, size: int) -> Any:
    rows = rows_of(size)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if kind == "columns":
        return {"batch_size": size, "optimizer": "sgd", **columns}
    if kind == "history":
        return {"config": {"batch_size": size, "betas": [0.9, 0.99]}, "history": rows}
    return {"config": {"batch_size": size}, "steps_to_target": TRUE[size], "tags": [{"a": 1}] * 2}


@pytest.mark.parametrize("kind", ["columns", "history", "one run"])
def test_a_json_file_for_each_run(tmp_path: Path, kind: str) -> None:
    place = folder(tmp_path / "logs")
    for size in SOME:
        (place / f"run{size}.json").write_text(json.dumps(as_json(kind, size), indent=2))
    (place / "config.json").write_text("{}")
    if kind == "one run":
        trials = results.open(place).trials
        assert dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True)) == some()
    else:
        assert reached(place) == some()


def test_metrics_of_sacred(tmp_path: Path) -> None:
    """The settings of a run are in the file beside it."""
    for number, size in enumerate(SOME):
        place = folder(tmp_path / "runs" / str(number))
        columns = pd.DataFrame(rows_of(size))
        steps, values = columns["step"].tolist(), columns["val_loss"]
        metrics = {
            name: {"steps": steps, "timestamps": ["2026-11-01"] * 25, "values": each.tolist()}
            for name, each in {"val.loss": values, "train.loss": 0.9 * values}.items()
        }
        (place / "metrics.json").write_text(json.dumps(metrics))
        (place / "config.json").write_text(json.dumps({"batch_size": size, "seed": 3}))
        (place / "run.json").write_text(json.dumps({"status": "COMPLETED"}))
    assert reached(tmp_path / "runs") == some()


# Trackers.


def test_run_folders_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    for size in SOME:
        config = {"batch_size": size, "model": {"width": 64}, "lr": 0.1}
        run = wandb.init(project="p", config=config, settings=wandb.Settings(console="off"))
        for step, loss in evaluations(size):
            run.log({"global_step": step, "val": {"loss": loss}, "note": "x" * 3000})
        run.finish()
    wandb.teardown()
    assert reached(tmp_path / "wandb") == some()


def wandb_record(number: int, **items: Any) -> bytes:
    """A record with items, in a message of a history or a configuration, as W&B writes it."""

    def field(number: int, data: bytes) -> bytes:
        return varint(8 * number + 2) + varint(len(data)) + data

    def varint(value: int) -> bytes:
        low, rest = value & 127, value >> 7
        return bytes([low | 128]) + varint(rest) if rest else bytes([low])

    message = b""
    for name, value in items.items():
        parts = name.split("__")
        keys = [field(2 if len(parts) > 1 else 1, part.encode()) for part in parts]
        message += field(1, b"".join(keys) + field(16, json.dumps(value).encode()))
    if number == 17:
        message = field(1, b"x7ab") + field(4, message)
    return varint(8) + varint(3) + field(number, message)


def wandb_file(path: Path, records: list[bytes]) -> None:
    """LevelDB's log: blocks of 32 KiB, over whose ends records are divided."""
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        begun = False
        while record or not begun:
            left = 32_768 - len(data) % 32_768
            if left < 7:
                data += b"\0" * left
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (3 if begun else 2) if record else (4 if begun else 1)
            data += b"\0" * 4 + len(part).to_bytes(2, "little") + bytes([kind]) + part
            begun = True
    path.write_bytes(data)


def test_records_of_wandb(tmp_path: Path) -> None:
    """Without W&B; of a run that went on in another folder, where its calls are counted again."""
    parts = [[*evaluations(16)][:14], [*evaluations(16)][10:]]
    for number, part in enumerate(parts):
        place = folder(tmp_path / "wandb" / f"offline-run-2026110{number}_100000-x7ab")
        records = [wandb_record(17, batch_size=16, _wandb={"cli_version": "0.31"})]
        records += [wandb_record(5, lr=0.1)]
        for call, (step, loss) in enumerate(part):
            lost = 0.5 if number == 0 and call >= 10 else loss
            record = wandb_record(2, _step=call, global_step=step, val__loss=lost, t="x" * 4000)
            records.append(record)
        wandb_file(place / "run-x7ab.wandb", records)
    assert reached(tmp_path / "wandb") == some([16])
    trials = results.open(tmp_path / "imported").trials
    assert trials["learning_rate"].tolist() == [0.1]
    assert "cli_version" not in trials["fields"].item()
    file = place / "run-x7ab.wandb"
    file.write_bytes(file.read_bytes()[:-9])  # its writer was killed
    assert reached(tmp_path / "wandb") == some([16])
    file.write_bytes(file.read_bytes()[:60] + b"\xff" * 60 + file.read_bytes()[120:])
    with pytest.raises(ResultsError, match=r"run-x7ab\.wandb is no log of Weights & Biases"):
        read_log(tmp_path / "wandb")


def test_folders_that_ray_names_by_settings(tmp_path: Path) -> None:
    """What it puts around them are the number and the time of the trial."""
    for number, size in enumerate(SOME):
        name = f"train_fn_3a2f_{number:05}_{number}_bs={size},lr=0.1000_2026-11-01_10-00-0{number}"
        place = folder(tmp_path / "tune" / name)
        (place / "result.json").write_text(lines(rows_of(size)))
    assert reached(tmp_path / "tune") == some()
    assert set(results.open(tmp_path / "imported").trials["learning_rate"]) == {0.1}


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """Its writer was killed; one among others is broken."""
    path = tmp_path / "bs16.jsonl"
    path.write_text(lines(rows_of(16)) + '{"step": 9000, "val_l')
    assert reached(path, batch_size="step*0+16") == some([16])
    path.write_text('{"step": 9000, "val_l\n' + lines(rows_of(16)))
    with pytest.raises(ResultsError, match="line 1 is not JSON"):
        read_log(path)


def test_a_configuration_of_deepspeed(tmp_path: Path) -> None:
    """Its train_batch_size is that of all devices, unlike that of a Trainer."""
    for size in SOME:
        place = folder(tmp_path / "logs" / f"run{size}")
        config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": size // 4}
        (place / "ds_config.json").write_text(json.dumps({"train_batch_size": size, **config}))
        (place / "log.jsonl").write_text(lines(rows_of(size)))
    assert reached(tmp_path / "logs") == some()


def test_what_was_appended_to_a_file_has_its_header_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    for size in SOME:
        with path.open("a") as file:
            file.write(pd.DataFrame(rows_of(size)).assign(bs=size).to_csv(index=False))
    assert reached(path) == some()


def test_what_a_tracker_says_of_a_run_makes_no_curves(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "run_id,params.batch_size,metrics.steps_to_target,step,tags.mlflow.user,config._wandb.v\n"
        "a,8,90,25,me,1\nb,16,60,25,you,2\n"
    )
    trials = results.open(path).trials
    assert trials["steps_to_target"].tolist() == [90, 60]
    assert not trials["fields"].notna().any()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["add_hparams", "add_scalars", "keras"])
def test_folders_that_are_parts_of_a_run_of_tensorboard(tmp_path: Path, kind: str) -> None:
    """torch's writer makes one for the settings, and one for each of several scalars; Keras one for
    training and one for validation, in which it counts epochs and updates."""
    for size in SOME:
        run = tmp_path / "board" / f"bs{size}"
        for name, factor in (("train", 0.9), ("validation", 1.0)):
            part = {"add_scalars": f"loss_{name}", "keras": name}.get(kind, "")
            writer = SummaryWriter(str(run / part))
            for epoch, (step, loss) in enumerate(evaluations(size)):
                if kind == "keras":
                    writer.add_scalar("epoch_loss", factor * loss, epoch)
                if kind != "keras" or name == "validation":
                    tag = {"add_scalars": "loss", "keras": "evaluation_loss"}.get(
                        kind, f"{name}_loss"
                    )
                    writer.add_scalar(tag, factor * loss, step)
            writer.close()
        if kind == "add_hparams":
            writer = SummaryWriter(str(run / "1795866630.27142"))
            writer.add_hparams({"bsz": 3, "opt": "sgd"}, {"validation_loss": 0.1}, name=".")
            writer.close()
        elif kind == "add_scalars":
            SummaryWriter(str(run)).close()
    metric = {"add_scalars": "loss_validation", "keras": "val_evaluation_loss"}
    name = metric.get(kind, "validation_loss")
    assert reached(tmp_path / "board", f"{name} < 1.00001") == some()
    trials = results.open(tmp_path / "imported").trials
    assert set(trials["optimizer"].dropna()) == ({"sgd"} if kind == "add_hparams" else set())


@pytest.mark.filterwarnings("ignore")
def test_runs_of_tensorboard_that_are_named_like_parts(tmp_path: Path) -> None:
    for size in SOME:
        writer = SummaryWriter(str(tmp_path / "board" / f"bs{size}_train"))
        for step, loss in evaluations(size):
            writer.add_scalar("val_loss", loss, step)
        writer.close()
    assert reached(tmp_path / "board") == some()


@pytest.mark.filterwarnings("ignore")
def test_epochs_of_keras_are_no_updates(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        writer = SummaryWriter(str(tmp_path / "board" / "bs100" / name))
        for epoch in range(4):
            writer.add_scalar("epoch_loss", 2.0 / (epoch + 1), epoch)
        writer.close()
    with pytest.raises(ResultsError, match="no column of steps, for epoch may count anything") as e:
        read_log(tmp_path / "board")
    assert "--map examples=epoch*50000+50000" in str(e.value.hint)
    given = {"examples": "epoch*50000+50000"}
    steps = read_log(tmp_path / "board", given).table.columns["step"]
    assert sorted({*steps}) == [500, 1000, 1500, 2000]
    assert reached(tmp_path / "board", "val_epoch_loss < 0.9", **given) == {100: 1500}


def test_epochs_of_a_table_without_a_column_of_runs(tmp_path: Path) -> None:
    """As the hint maps them: rows of evaluations, not final losses of many runs."""
    path = tmp_path / "mine.csv"
    rows = [{"bs": size, "epoch": s * size / 4000, "val_loss": v} for size in SOME
            for s, v in evaluations(size)]  # fmt: skip
    pd.DataFrame(rows).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="for epoch may count anything but updates") as caught:
        read_log(path)
    assert "--map examples=epoch*50000" in str(caught.value.hint)
    assert reached(path, examples="epoch*4000") == some()


def test_cells_of_many_settings(tmp_path: Path) -> None:
    """Tables of runs that are made with the API of W&B, in JSON or as Python prints dicts."""
    path = tmp_path / "project.csv"
    for write in (json.dumps, str):
        rows = [
            {
                "name": f"run-{size}-{lr}",
                "config": write({"batch_size": size, "lr": lr, "dims": [1, 2], "m": {"w": None}}),
                "summary": write({"steps_to_target": TRUE[size] * (1 if lr == 0.1 else 2)}),
            }
            for size in SOME
            for lr in (0.1, 0.2)
        ]
        pd.DataFrame(rows).to_csv(path)
        trials = results.open(path).trials
        best = trials.groupby("batch_size")["steps_to_target"].min()
        assert best.to_dict() == some()
        assert set(trials["learning_rate"]) == {0.1, 0.2}
        assert set(trials["role"]) == {"search"}


def test_a_table_of_aligned_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("batch_size   steps\n" + "".join(f"{n:10}   {TRUE[n]:5.0f}\n" for n in SOME))
    trials = results.open(path).trials
    assert dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True)) == some()


def test_a_file_of_no_known_format_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A model\n")
    with pytest.raises(ResultsError, match=r"README\.md is not a log of a known format"):
        read_log(tmp_path / "README.md")
