"""What a researcher does on the first day, and in an afternoon. Run with the wheel, from an empty
folder.

The first day: a model of several files, optimizers of their own, three batch sizes, a change of
mind about a range, Ctrl-C, a kill, and the same command again, on a Ray that the sweep starts. The
afternoon, without Ray: what is typed wrong first, another target for a part of the grid, a range
that is narrowed, and the questions that follow, each of which has one answer.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batchscale.blocks import ROOT, blocks
from tests.batchscale.people import Person, end, wait

TRIALS = 4
BATCH_SIZES = (8, 16, 32)
OPTIMIZERS = ("Lion", "MuonAdamW")

LAYERS = '''\
"""A causal Transformer block."""
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.mlp_norm(x))
'''
TRANSFORMER = '''\
"""A character Transformer on the source of Python's string module."""
import string
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from batchscale import Workload
from layers import Block


class Transformer(nn.Module):
    def __init__(self, characters, width, context):
        super().__init__()
        self.token_embedding = nn.Embedding(characters, width)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(context, width))
        self.block = Block(width, heads=2)
        self.head = nn.Linear(width, characters)

    def forward(self, tokens):
        return self.head(self.block(self.token_embedding(tokens) + self.position_embedding))


class CharacterLM(Workload):
    target = "validation_cross_entropy < 3.2"
    example_unit = "sequence"
    tokens_per_example = 16
    width: int = 16

    def data(self):
        text = Path(string.__file__).read_text()
        tokens = torch.tensor([min(ord(c), 127) for c in text])
        windows = tokens[: len(tokens) // 17 * 17].view(-1, 17)
        windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))]
        split = {"train": windows[100:], "validation": windows[:100]}
        return {name: (rows[:, :-1], rows[:, 1:].clone()) for name, rows in split.items()}

    def model(self):
        return Transformer(128, self.width, 16)

    def _cross_entropy(self, output, batch):
        return F.cross_entropy(output.transpose(1, 2), batch[1], reduction="none").mean(1)

    def loss(self, output, batch):
        return self._cross_entropy(output, batch)

    def metrics(self, output, batch):
        return {"cross_entropy": self._cross_entropy(output, batch)}
'''
EXPERIMENT = f"""\
workload: my_lm.py
grid:
  batch_size: [8, 16, 32]
  optimizer: [my_opt.py:Lion, muon.py:MuonAdamW]
trials: {TRIALS}
budget: 300 steps
stop_at_target: false
"""
SWEEP = ("sweep", "lm.yaml", "--results", "runs")
NARROWED = ("--set", "search.Lion.learning_rate={log: [0.001, 0.02]}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel of this tree is installed into."""
    base = tmp_path_factory.mktemp("wheel")
    source, made, site = base / "source", base / "made", base / "site"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for command in (
        [
            *pip,
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(made),
            str(source),
        ],
        [*pip, "install", "--quiet", "--no-deps", "--target", str(site)],
    ):
        wheels = [str(wheel) for wheel in made.glob("*.whl")] if "install" in command else []
        subprocess.run([*command, *wheels], check=True, capture_output=True)
    return site


@pytest.mark.ray
@pytest.mark.slow
def test_the_first_day(tmp_path: Path, site: Path) -> None:
    stranger = Person(tmp_path, site)
    opt, muon = (
        next(block.text for block in blocks("docs/optimizers.md") if block.title == name)
        for name in ("my_opt.py", "muon.py")
    )
    files = {"my_lm.py": TRANSFORMER, "layers.py": LAYERS, "my_opt.py": opt, "muon.py": muon}
    stranger.write({**files, "lm.yaml": EXPERIMENT})
    committed = tmp_path / "runs" / "trials"

    # Ctrl-C as soon as something is there.
    process = stranger.begin(*SWEEP)
    wait(process, lambda: any(committed.rglob("*.parquet")))
    status, err = end(process, signal.SIGINT)
    assert status == 130, err
    assert "give the same command again to continue" in err
    first = {row["trial"]: row for row in stranger.rows()}
    assert 0 < len(first) < TRIALS * len(BATCH_SIZES) * len(OPTIMIZERS)

    # A narrower range for one of the optimizers; and a kill that nobody can prepare for.
    process = stranger.begin(*SWEEP, *NARROWED)
    wait(process, lambda: len({row["trial"] for row in stranger.rows()}) > len(first))
    status, _ = end(process, signal.SIGKILL)
    assert status == -signal.SIGKILL

    process = stranger.begin(*SWEEP, *NARROWED)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err

    # What has been asked for is there, once.
    rows = stranger.rows()
    assert len({row["trial"] for row in rows}) == len(rows)
    assert all(row["stop_reason"] == "budget" for row in rows), {r["stop_reason"] for r in rows}
    status_now = stranger.ask("status", "runs")
    assert sum(study["left"] for study in status_now) == 0
    curves = {curve["optimizer"]: curve for curve in stranger.ask("regimes", "runs")}
    assert sorted(curves) == sorted(OPTIMIZERS)
    for curve in curves.values():
        assert curve["trials"] == TRIALS
        assert tuple(point["batch_size"] for point in curve["points"]) == BATCH_SIZES
        assert [point["trials"] for point in curve["points"]] == [TRIALS] * len(BATCH_SIZES)

    # What was there before a signal is as it was: not one of these trials has been trained again.
    kept = {row["trial"]: row for row in rows}
    whole = [trial for trial, row in first.items() if row["stop_reason"] == "budget"]
    assert all(kept[trial]["run"] == first[trial]["run"] for trial in whole)

    # Trials of the first range are told of, and are not among those of the present one.
    wide = {trial for trial, row in first.items() if row["optimizer"] == "Lion"}
    assert {row["trial"] for row in rows} - present(stranger) == wide
    assert sum(study["other_searches"] for study in status_now) == len(wide)


def present(stranger: Person) -> set[str]:
    """The trials that the present searches hold."""
    rows = stranger.ask(
        "query",
        "SELECT trial FROM trials JOIN (SELECT study, arg_max(search_id, time) AS search_id "
        "FROM studies GROUP BY study) USING (study, search_id)",
        "runs",
    )
    return {row["trial"] for row in rows}


TIED = """\
\"\"\"A GPT whose head shares the weights of its token embedding.\"\"\"
from my_lm import CharacterLM


class TiedLM(CharacterLM):
    def model(self):
        model = super().model()
        model.head.weight = model.token_embedding.weight
        return model
"""
SCRIPT = """\
import argparse
from pathlib import Path

Path("ran").touch()
argparse.ArgumentParser().parse_args()
"""
AFTERNOON = """\
workload: tied.py:TiedLM
grid:
  batch_size: [8, 16, 32]
  optimizer: my_opt.py:Lion
  schedule: trapezoid.py:Trapezoid
search:
  learning_rate: {log: [0.001, 0.05]}
  stable: 0.5
  decay: 0.3
trials: 4
budget: 60 steps
engine: stacked
"""
HERE = ("--address", "none", "--results", "runs")
LOAD = """\
from safetensors.torch import load_file
from tied import TiedLM
model = TiedLM().model()
model.load_state_dict(load_file("model.safetensors"))
assert model.head.weight is model.token_embedding.weight
"""


@pytest.mark.slow
def test_an_afternoon(tmp_path: Path, site: Path) -> None:
    stranger = Person(tmp_path, site)
    code = {
        name: next(block.text for block in blocks("docs/optimizers.md") if block.title == name)
        for name in ("my_opt.py", "trapezoid.py")
    }
    stranger.write({**code, "my_lm.py": TRANSFORMER, "layers.py": LAYERS, "tied.py": TIED})
    stranger.write({"train.py": SCRIPT, "lm.yaml": AFTERNOON})

    # What is typed wrong is answered in a line, and nothing is run or written.
    stranger.write({"script.yaml": AFTERNOON.replace("tied.py:TiedLM", "train.py")})
    stranger.write({"epochs.yaml": AFTERNOON.replace("budget: 60 steps", "epochs: 10")})
    said = stranger.fail("sweep", "script.yaml", *HERE, "--dry-run")
    assert "train.py defines no workload: it is a script, and was not run" in said
    assert "budget" in stranger.fail("sweep", "epochs.yaml", *HERE).splitlines()[-1]
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "runs").exists()

    # The sweep, and where it stands.
    sweep = ("sweep", "lm.yaml", *HERE)
    assert "12 trials trained" in stranger.run(*sweep)
    assert stranger.left() == 0
    (before,) = stranger.ask("regimes", "runs")
    assert [point["trials"] for point in before["points"]] == [TRIALS] * len(BATCH_SIZES)

    # A part of the grid to another target: as far for the sweep as for ``status``, and the line of
    # the others stays.
    part = ("--set", "target=validation_cross_entropy < 3.1", "--set", "grid.batch_size=[16]")
    said = stranger.fail(*sweep, *part, "--for", "1s", status=4)
    missing = stranger.left()
    assert missing > 0
    assert f"not complete, {missing} trial" in said
    stranger.run(*sweep, *part)
    assert stranger.left() == 0
    harder, same = sorted(stranger.ask("regimes", "runs"), key=lambda curve: str(curve["target"]))
    assert {key: same[key] for key in ("points", "trials", "notes")} == {
        key: before[key] for key in ("points", "trials", "notes")
    }
    assert [point["batch_size"] for point in harder["points"]] == [16]

    # A range that is narrowed is another search: SQL and ``regimes`` count the same one.
    stranger.run(*sweep, "--set", "search.learning_rate={log: [0.001, 0.01]}")
    assert stranger.left() == 0
    (curve,) = stranger.ask("regimes", "runs")
    best = stranger.ask("query", "SELECT batch_size, steps FROM best ORDER BY batch_size", "runs")
    assert [(row["batch_size"], row["steps"]) for row in best] == [
        (point["batch_size"], point["steps"]) for point in curve["points"]
    ]

    # A trial again, with weights that its own module loads; and a figure.
    (row, *_) = stranger.ask("query", "SELECT trial FROM trials WHERE batch_size = 8", "runs")
    kept = ("--results", "runs", "--save", "model.safetensors")
    assert "equal" in stranger.run("trial", "--from", row["trial"], *kept)
    subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=tmp_path,
        env={**stranger.environment, "PYTHONPATH": f"{site}:{tmp_path}"},
        check=True,
    )
    stranger.run("plot", "steps", "runs", "-o", "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 10_000
