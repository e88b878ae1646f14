"""A log in each format, as its tool writes it: the same runs, and the same steps to a target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from tensorboardX import SummaryWriter

import batchscale as bs
import results
from results.errors import ResultsError
from results.extensions import IMPORTS
from results.user_tables.log import read_log
from tests.results.test_shapes_of_tables import SIZES, TRUE, evaluations

TARGET = "val_loss < 1.00001"
SOME = [16, 64, 256]


def reached(path: Path, target: str = TARGET, **columns: str) -> dict[int, float]:
    """Steps to the target by batch size, of an import of ``path``."""
    root = path.parent / "imported"
    IMPORTS.get("log")(path, root, columns=columns or None, name="x")
    trials = results.open(root).with_target(target).trials
    assert trials["batch_size"].is_unique
    return dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True))


def some(sizes: list[int] = SOME) -> dict[int, float]:
    return {size: TRUE[size] for size in sizes}


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_lightning(tmp_path: Path) -> None:
    """Metrics of training and validation in rows of their own; the step is one less than the number
    of updates; what was configured is beside it."""
    for number, size in enumerate(SOME):
        run = folder(tmp_path / "lightning_logs" / f"version_{number}")
        rows = []
        for epoch, (step, loss) in enumerate(evaluations(size)):
            rows += [f",{step - 1},{0.9 * loss},", f"{epoch},{step - 1},,{loss}"]
        (run / "metrics.csv").write_text("\n".join(["epoch,step,train_loss,val_loss", *rows]))
        (run / "hparams.yaml").write_text(f"batch_size: {size}\nmodel: !!python/object:a.B {{}}\n")
    assert reached(tmp_path / "lightning_logs") == some()


def test_lightning_refuses_one_metric_twice_at_a_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("batch_size,epoch,step,val_loss\n8,0,9,2\n8,0,9,1\n")
    with pytest.raises(ResultsError, match="line 3: step 10 occurs twice in one run"):
        results.open(path)


def test_ray(tmp_path: Path) -> None:
    """A trial that was restored on another node reports the steps since its checkpoint again."""
    for size in SOME:
        run = folder(tmp_path / "tune" / f"train_{size:05}_0")
        rows = [
            {"step": step, "val_loss": loss, "trial_id": f"t{size}", "hostname": "a", "pid": 7}
            | {"config": {"bs": size, "lr": 0.1}, "training_iteration": at, "done": False}
            for at, (step, loss) in enumerate(evaluations(size))
        ]
        lost = [{**row, "val_loss": 0.5} for row in rows[10:13]]
        after = [{**row, "hostname": "b", "pid": 8} for row in rows[10:]]
        (run / "result.json").write_text(lines([*rows[:10], *lost, *after]))
        (run / "params.json").write_text(json.dumps({"bs": size, "lr": 0.1}))
        pd.json_normalize(rows, sep="/").to_csv(run / "progress.csv", index=False)
    assert reached(tmp_path / "tune") == some()
    trials = results.open(tmp_path / "imported").trials
    assert set(trials["learning_rate"]) == {0.1}
    assert trials["fields"].str.contains("hostname").sum() == 0


@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_reports_of_ray_are_no_updates(tmp_path: Path, name: str) -> None:
    rows = [{"training_iteration": n, "batch_size": 8, "loss": 1 / n} for n in range(1, 4)]
    text = lines(rows) if name == "result.json" else pd.DataFrame(rows).to_csv(index=False)
    (tmp_path / name).write_text(text)
    with pytest.raises(ResultsError, match="for training_iteration may count anything but upd"):
        results.open(tmp_path / name)
    steps = read_log(tmp_path / name, {"step": "training_iteration*50"}).table.columns["step"]
    assert steps == [50, 100, 150]


def states(tmp_path: Path) -> Path:
    """Folders of Transformers: each checkpoint has the history until then."""
    for size in SOME:
        history: list[dict[str, Any]] = []
        for step, loss in evaluations(size):
            history += [
                {"step": step, "epoch": step / 1000, "loss": 0.9 * loss, "learning_rate": 1 / step},
                {"step": step, "epoch": step / 1000, "eval_loss": loss, "eval_runtime": 0.1},
            ]
        for until in (20, len(history)):
            state = {"train_batch_size": 2, "max_steps": 9, "log_history": history[:until]}
            at = history[until - 1]["step"]
            place = folder(tmp_path / "runs" / f"b{size}" / f"checkpoint-{at}")
            (place / "trainer_state.json").write_text(json.dumps(state))
        args = {"gradient_accumulation_steps": size // 4, "output_dir": f"b{size}"}
        (tmp_path / "runs" / f"b{size}" / "args.json").write_text(json.dumps(args))
    return tmp_path / "runs"


def test_transformers(tmp_path: Path) -> None:
    path = states(tmp_path)
    with pytest.raises(ResultsError, match="is the batch size of one device's forward pass") as why:
        reached(path)
    named = "per_device_train_batch_size*config.gradient_accumulation_steps*DEVICES"
    assert named in str(why.value.hint)
    product = "per_device_train_batch_size*gradient_accumulation_steps*2"
    assert reached(path, "eval_loss < 1.00001", batch_size=product) == some()


def events(path: Path, size: int) -> None:
    """A run that was killed, and went on from a checkpoint in a second file."""
    looks = [*evaluations(size)]
    for name, part, factor in (("a", looks[:14], 1.0), ("b", looks[10:], 1.0)):
        writer = SummaryWriter(str(path), filename_suffix=f".{name}")
        writer.add_hparams({"batch_size": size, "optimizer": "sgd"}, {}, name=".")
        for at, (step, loss) in enumerate(part):
            lost = name == "a" and at >= 10
            writer.add_scalar("train/loss", 0.9 * loss, step)
            writer.add_scalar("val/loss", 0.5 if lost else loss * factor, step)
        writer.add_scalar("epoch_loss", 1.0, 1)  # over epochs: no step back
        writer.close()


@pytest.mark.filterwarnings("ignore")
def test_tensorboard(tmp_path: Path) -> None:
    for size in SOME:
        events(tmp_path / "board" / f"run{size}", size)
    for file in (tmp_path / "board").rglob("*.a"):
        file.rename(file.with_name(f"events.out.tfevents.1.{file.suffix}"))
    for file in (tmp_path / "board").rglob("*.b"):
        file.rename(file.with_name(f"events.out.tfevents.2.{file.suffix}"))
    assert reached(tmp_path / "board") == some()
    one = next((tmp_path / "board" / "run16").glob("*tfevents.2*"))
    one.write_bytes(one.read_bytes()[:-7])  # its writer was killed
    assert reached(tmp_path / "board") == some()


def test_csv_files_of_tensorboard(tmp_path: Path) -> None:
    """A file for each tag, whose name has the run."""
    place = folder(tmp_path / "board")
    for size in SOME:
        for tag, factor in (("val_loss", 1.0), ("train_loss", 0.7)):
            rows = [f"1.7e9,{step},{factor * loss}" for step, loss in evaluations(size)]
            text = "\n".join(["Wall time,Step,Value", *rows])
            (place / f"run-bs{size}_0-tag-{tag}.csv").write_text(text)
    assert reached(place) == some()
    (place / "run-sgd-tag-val_loss.csv").write_text(text)
    with pytest.raises(ResultsError, match="has no column 'batch_size'"):
        reached(place)


def test_a_chart_of_wandb(tmp_path: Path) -> None:
    """A column for each run, and its least and most; the batch size is in the names."""
    frames = []
    for size in SOME:
        name = f"batch_size: {size} - val/loss"
        frame = pd.DataFrame(evaluations(size), columns=["Step", name]).set_index("Step")
        frames.append(frame.assign(**{f"{name}__MIN": frame[name], f"{name}__MAX": frame[name]}))
    path = tmp_path / "wandb_export.csv"
    pd.concat(frames, axis=1).sort_index().to_csv(path)
    assert reached(path) == some()


def test_a_table_of_runs_of_wandb(tmp_path: Path) -> None:
    """How often each has called W&B is no step of an evaluation."""
    path = tmp_path / "runs.csv"
    path.write_text("run_id,State,batch_size,_step,val/loss\na,done,8,90,2\nb,done,16,80,1\n")
    with pytest.raises(ResultsError, match="has no column 'steps'"):
        results.open(path)
    path.write_text(path.read_text().replace("_step", "tokens"))
    assert set(results.open(path).trials["role"]) == {"final"}


@pytest.mark.parametrize(("metric", "name"), [(1, "{}-{}"), (0, "{}-{}"), (1, "{}"), (1, "mine")])
def test_a_table_of_runs_of_wandb_by_their_names(tmp_path: Path, metric: int, name: str) -> None:
    """Two learning rates of a batch size are two runs, and no evaluations of one."""
    path = tmp_path / "runs.csv"
    rows = [
        (name.format(size, rate), "finished", size, rate, 0, round(4000 / size / rate), 0.9)
        for size in SOME
        for rate in (0.1, 0.2)
    ]
    names = ["Name", "State", "batch_size", "lr", "seed", "_step", "val/loss"]
    frame = pd.DataFrame(rows, columns=names)
    (frame if metric else frame.drop(columns="val/loss")).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="_step of a table of runs is the last call") as raised:
        results.open(path)
    assert str(raised.value.hint).startswith("--map steps=_step if each run was ended")
    IMPORTS.get("log")(path, tmp_path / "runs", columns={"steps": "_step"})
    trials = results.open(tmp_path / "runs").trials
    found = trials[["batch_size", "learning_rate", "steps_to_target"]]
    assert sorted(map(tuple, found.astype(float).to_numpy())) == [
        (size, rate, steps) for _, _, size, rate, _, steps, _ in rows
    ]


def test_no_hint_says_what_is_so_already(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("run,batch_size,steps\na,8,1\na,8,2\nb,16,1\nb,16,2\n")
    with pytest.raises(ResultsError, match="has no metric besides step") as raised:
        results.open(path)
    assert raised.value.hint == "for example a column validation_error"


def test_a_list_of_objects(tmp_path: Path) -> None:
    rows = [
        {"bs": size, "step": s, "val": {"loss": v}} for size in SOME for s, v in evaluations(size)
    ]
    (tmp_path / "all.json").write_text(json.dumps(rows, indent=1))
    assert reached(tmp_path / "all.json") == some()


def test_mlflow(tmp_path: Path) -> None:
    for size in SOME:
        run = folder(tmp_path / "mlruns" / "0" / f"{size:032x}")
        for part in ("metrics/val", "params", "tags"):
            folder(run / part)
        (run / "meta.yaml").write_text(f"run_id: {size:032x}\nstatus: 3\n")
        (run / "params" / "batch_size").write_text(str(size))
        rows = [f"{1000 + step} {loss} {step}\n" for step, loss in evaluations(size)]
        (run / "metrics" / "val" / "loss").write_text("".join(rows))
        (run / "metrics" / "train_loss").write_text("".join(rows))
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default\n")
    assert reached(tmp_path / "mlruns") == some()


def optuna_study(storage: Any) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.disable_default_handler()
    study = optuna.create_study(storage=storage, study_name="s")
    for size in SOME:
        trial = study.ask({"lr": optuna.distributions.FloatDistribution(0.1, 0.2)})
        trial.set_user_attr("batch_size", size)
        for step, loss in evaluations(size):
            trial.report(loss, step)
        study.tell(trial, loss)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_optuna(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("study.db" if kind == "sqlite" else "journal.log")
    storage: Any = f"sqlite:///{path}"
    if kind == "journal":
        storages = pytest.importorskip("optuna.storages")
        storage = storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))
    optuna_study(storage)
    with pytest.raises(ResultsError, match="for intermediate_step may count anything but updates"):
        reached(path)
    assert reached(path, "value < 1.00001", step="intermediate_step") == some()


def test_a_data_frame_of_optuna(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    path.write_text(
        "number,value,datetime_start,duration,params_batch_size,params_lr,state\n"
        "0,100,2026-11-01 10:00:00,0 days,8,0.1,COMPLETE\n"
        "1,60,2026-11-01 11:00:00,0 days,16,0.1,COMPLETE\n"
        "2,45,2026-11-01 12:00:00,0 days,16,0.2,PRUNED\n"
        "3,,2026-11-01 12:00:00,0 days,32,0.2,FAIL\n"
    )
    IMPORTS.get("log")(path, tmp_path / "runs", columns={"steps": "value"})
    trials = results.open(tmp_path / "runs").trials
    assert trials["steps_to_target"].fillna(0).tolist() == [100, 60, 0, 0]
    assert trials["batch_size"].tolist() == [8, 16, 16, 32]
    assert trials["learning_rate"].tolist() == [0.1, 0.1, 0.2, 0.2]


def printed(tmp_path: Path, kind: str) -> Iterator[Path]:
    for size in SOME:
        text = []
        if kind == "nanogpt":
            text = ["Overriding: learning_rate = 0.001", f"tokens per iteration will be: {size:,}"]
        else:
            text = [
                f"[titan] INFO - Trainer is initialized with local batch size 2, global batch size "
                f"{size}, gradient accumulation steps 1, sequence length 512, total steps 9"
            ]
        for step, loss in evaluations(size):
            if kind == "nanogpt":
                text += [
                    f"step {step}: train loss {0.9 * loss:.9f}, val loss {loss:.9f}",
                    f"iter {step}: loss {0.8 * loss:.4f}, time 30.12ms, mfu 12.3%",
                ]
            else:
                text += [
                    f"\x1b[31mstep: {step:2,}  \x1b[32mloss: {0.9 * loss:7.4f}  grad_norm: 1.2  "
                    "\x1b[33mmemory: 20.1GiB(21.2%)  tps: 7,000  tflops: 30.1  mfu: 9.8%\x1b[39m",
                    f"\x1b[35mvalidate step: {step:2,}  loss: {loss:.9f}  memory:  2GiB(1%)",
                ]
        path = tmp_path / "logs" / f"b{size}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(text))
        yield path


@pytest.mark.parametrize("kind", ["nanogpt", "torchtitan"])
def test_printed_lines(tmp_path: Path, kind: str) -> None:
    *_, last = printed(tmp_path, kind)
    assert reached(last.parent) == some()
    trials = results.open(tmp_path / "imported").trials
    assert set(trials["tokens_per_example"]) == {1 if kind == "nanogpt" else 512}


def test_json_lines_among_others(tmp_path: Path) -> None:
    rows = [{"step": s, "val/loss": v, "batch_size": 16} for s, v in evaluations(16)]
    (tmp_path / "out.log").write_text("loading data\n{not json}\n" + lines(rows) + "saved\n")
    assert reached(tmp_path / "out.log") == {16: TRUE[16]}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_partitioned_folder(tmp_path: Path, suffix: str) -> None:
    for size in SOME:
        frame = pd.DataFrame(evaluations(size), columns=["step", "val_loss"])
        place = folder(tmp_path / "table" / f"batch_size={size}" / "optimizer=adamw")
        for number, part in enumerate(np.array_split(frame.index, 2)):
            half = frame.loc[part]
            if suffix == "csv":
                half.to_csv(place / f"part-{number}.csv", index=False)
            else:
                half.to_parquet(place / f"part-{number}.parquet", index=False)
    assert reached(tmp_path / "table") == some()
    assert set(results.open(tmp_path / "imported").trials["optimizer"]) == {"adamw"}


def test_files_of_one_run_each(tmp_path: Path) -> None:
    """And folders that Hydra names by what it changed."""
    for size in SOME:
        place = folder(tmp_path / "multirun" / f"bs={size},lr=0.1")
        rows = [{"step": step, "val_loss": loss} for step, loss in evaluations(size)]
        (place / "metrics.jsonl").write_text(lines(rows))
    assert reached(tmp_path / "multirun") == some()
    assert set(results.open(tmp_path / "imported").trials["learning_rate"]) == {0.1}


def test_files_of_many_runs_each_are_curves_of_their_own(tmp_path: Path) -> None:
    place = folder(tmp_path / "tables")
    for name, factor in (("adam", 1), ("sgd", 2)):
        rows = [f"{size},{factor * steps:.0f}" for size, steps in TRUE.items()]
        (place / f"{name}.csv").write_text("\n".join(["batch_size,steps", *rows]))
    trials = results.open(place).trials
    assert trials["file"].value_counts().to_dict() == {"adam": len(SIZES), "sgd": len(SIZES)}


def test_a_configuration_of_wandb(tmp_path: Path) -> None:
    for size in SOME:
        place = folder(tmp_path / "wandb" / f"run-{size}")
        config = {"bs": {"desc": None, "value": size}, "wandb_version": 1}
        (place / "config.yaml").write_text(yaml.safe_dump(config))
        rows = [
            {"_step": n, "step": s, "val/loss": v} for n, (s, v) in enumerate(evaluations(size))
        ]
        pd.DataFrame(rows).to_parquet(place / "history.parquet")
    assert reached(tmp_path / "wandb") == some()


def test_adapters_stay_thin() -> None:
    files = [*Path(str(results.__file__)).parent.glob("user_tables/formats/*.py")]
    assert len(files) > 10
    assert max(len(file.read_text().splitlines()) for file in files) <= 100


def test_a_folder_without_logs_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none\n")
    with pytest.raises(ResultsError, match="holds no log that can be read"):
        read_log(tmp_path)


def test_regimes_of_a_folder_of_logs_need_no_import(tmp_path: Path) -> None:
    test_files_of_one_run_each(tmp_path)
    with pytest.raises(ResultsError, match="no batch size has steps") as caught:
        bs.regimes(tmp_path / "multirun")
    assert "whole curves need a target" in str(caught.value.hint)
    trials = results.open(tmp_path / "multirun").with_target(TARGET).trials
    assert dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True)) == some()
