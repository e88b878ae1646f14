"""The Python API: one function behind each command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import batchscale as bs
from batchscale.output.errors import CommandError
from batchscale.trials import reference
from experiments.scheduling.messages import Event, StudyPlanned, ignore
from tests.batchscale.conftest import EXPERIMENT


def test_every_public_name_is_there() -> None:
    for name in bs.__all__:
        assert getattr(bs, name) is not None
    assert bs.__version__
    assert set(bs.__all__) <= set(dir(bs))
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = bs.swep


def test_a_run_has_frames_sql_regimes_and_figures(small: Path, here: Path) -> None:
    run = bs.open(small)
    assert "8 studies, 32 trials, " in repr(run)
    best = run.trials.groupby(["optimizer", "batch_size"]).steps_to_target.min()
    assert best.loc["sgd", 32] > best.loc["sgd", 256]
    assert len(run.studies) == 8
    assert run.measurements["trial"].nunique() == 32
    assert run.sources.empty
    assert run.query("SELECT count(*) AS n FROM trials")["n"][0] == 32
    first = run.regimes(baseline="momentum")[0]
    assert first["optimizer"] == "momentum"
    assert len(run.where("optimizer = 'sgd'").regimes()) == 1
    assert run.regimes(estimator="median_of_searches")[0]["estimator"] == "median_of_searches"
    title = run.plot(where="optimizer = 'sgd'", estimator="median_of_searches").get_title("left")
    assert title.endswith("median best of 4")
    ax = run.plot("steps", where="optimizer = 'sgd'", output=here / "one.svg")
    assert ax.get_ylabel() == "steps to target"
    assert (here / "one.csv").is_file()
    plt.close("all")


def test_a_sweep_from_keywords(tmp_path: Path) -> None:
    seen: list[Event] = []
    run = bs.sweep(
        workload="digits-softmax",
        optimizer=["sgd"],
        batch_size=[64, 256],
        learning_rate={"log": [0.1, 3]},
        trials=2,
        budget="60 steps",
        target="validation_error < 0.2",
        results=tmp_path / "runs",
        address="none",
        observer=seen.append,
    )
    assert run.summary is not None
    assert run.summary.complete
    assert run.summary.trained == 4
    assert sum(isinstance(event, StudyPlanned) for event in seen) == 2
    assert set(run.trials["batch_size"]) == {64, 256}


def test_a_run_holds_its_studies_alone_whoever_trained_them(small: Path, tmp_path: Path) -> None:
    """The trials are the same, whatever the experiment is called: none is trained again."""
    runs = Path(shutil.copytree(small, tmp_path / "runs"))
    changes = ["name=other", "grid.batch_size=32", "grid.optimizer=sgd"]
    run = bs.sweep(
        small.parent / "small.yaml",
        overrides=changes,
        results=runs,
        address="none",
        observer=ignore,
    )
    assert run.summary is not None
    assert run.summary.trained == 0
    assert len(run.trials) == 4
    assert set(run.trials["batch_size"]) == {32}


def test_a_sweep_of_nothing_or_of_two_things() -> None:
    with pytest.raises(CommandError, match="needs an experiment"):
        bs.sweep()
    with pytest.raises(CommandError, match="an experiment and keywords: trials") as caught:
        bs.sweep("digits", trials=8)
    assert "overrides" in str(caught.value.hint)


def test_a_trial_of_a_class_is_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from batchscale import Classification\n"
        "class Mine(Classification):\n"
        "    target = 'validation_error < 0.2'\n"
        "    width: int = 4\n"
        "    def data(self):\n"
        "        x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))\n"
        "        y = (x[:, 0] > 0).long()\n"
        "        return {'train': (x, y), 'validation': (x, y)}\n"
        "    def model(self):\n"
        "        return torch.nn.Sequential(torch.nn.Linear(4, self.width), torch.nn.ReLU(),\n"
        "                                   torch.nn.Linear(self.width, 2))\n"
    )
    import workloads

    kind = type(workloads.load("mine.py:Mine", {}, tmp_path))
    by_class = bs.trial(kind, batch_size=32, learning_rate=0.5, width=8)
    by_name = bs.trial(f"{tmp_path}/mine.py:Mine", batch_size=32, learning_rate=0.5, width=8)
    assert by_class.steps_to_target == by_name.steps_to_target
    assert by_class.measurements.drop(columns="train_seconds").equals(
        by_name.measurements.drop(columns="train_seconds")
    )
    assert dict(by_class.weights)["0.weight"].shape == (8, 4)
    ax = by_class.plot()
    assert ax.get_title(loc="left").startswith("target reached at step")
    assert ax.get_xscale() == "log"
    plt.close("all")


def test_what_is_not_given_has_the_optimizers_default() -> None:
    given: dict[str, Any] = {"optimizer": "adamw", "batch_size": 64, "budget": "10 steps"}
    plain = bs.trial("digits-softmax", **given)
    said = bs.trial("digits-softmax", learning_rate=1e-3, weight_decay=0.01, **given)
    assert plain.trial == said.trial
    assert plain.metaparameters == {
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
    }
    assert bs.trial("digits-softmax", beta1=0.5, **given).metaparameters["beta1"] == 0.5
    torchs = bs.trial("digits-softmax", **{**given, "optimizer": "NAdam"})
    assert torchs.trial.metaparameters == {"learning_rate": 2e-3}
    with pytest.raises(CommandError, match=r"needs a value of momentum$"):
        bs.trial("digits-softmax", **{**given, "optimizer": "momentum"})
    with pytest.raises(CommandError, match=r"needs a value of decay$"):
        bs.trial("digits-softmax", schedule="cosine", **given)


def test_seeds_make_other_runs() -> None:
    given: dict[str, Any] = {
        "batch_size": 64,
        "learning_rate": 0.3,
        "target": "validation_error < 0.15",
    }
    one, two = (bs.trial("digits-softmax", seed=seed, **given) for seed in (0, 1))
    assert one.trial.seed != two.trial.seed
    assert one.measurements["validation_error"][0] != two.measurements["validation_error"][0]


def test_a_trial_that_does_not_reach_its_target_says_how_far_it_came() -> None:
    run = bs.trial("digits-softmax", batch_size=64, learning_rate=0.001, budget="20 steps")
    assert run.steps_to_target is None
    assert "not reached in 20 steps: validation_error is" in run.verdict
    wild = bs.trial("digits-mlp", batch_size=64, learning_rate=1e30, budget="40 steps")
    assert "diverged by step" in wild.verdict


def test_references_to_workloads() -> None:
    import workloads

    packaged = type(workloads.load("digits-mlp"))
    assert reference(packaged, {}).spec == "digits-mlp"
    assert reference("mine.py:A", {"width": 3}).fields == {"width": 3}
    held = reference(workloads.load("digits-mlp", {"label_smoothing": 0.1}), {})
    assert held.fields["label_smoothing"] == 0.1


def test_plan_counts_what_is_recorded(small: Path) -> None:
    from batchscale import sweeps

    frame = sweeps.plan(small.parent / "small.yaml", results=small)
    assert list(frame["recorded"]) == [4] * 8
    assert EXPERIMENT.count("optimizer") == 1
    assert set(frame["optimizer"]) == {"sgd", "momentum"}
