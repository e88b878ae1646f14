"""What a researcher does on the first day: a model of several files, optimizers of their own,
three batch sizes, a change of mind about a range, Ctrl-C, a kill, and the same command again. Run
with the wheel, from an empty folder, on a Ray that the sweep starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.batchscale.blocks import ROOT, blocks

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


class Stranger:
    """Somebody in an empty folder, with the wheel."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "batchscale", *words],
            cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        return out

    def ask(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def begin_sweep(self, *more: str) -> subprocess.Popen[str]:
        return self.begin("sweep", "lm.yaml", "--results", "runs", *more)

    def rows(self) -> list[dict[str, Any]]:
        """Every committed row of a trial, as any reader of Parquet sees it."""
        files = sorted(map(str, (self.folder / "runs" / "trials").rglob("*.parquet")))
        rows: list[dict[str, Any]] = pyarrow.dataset.dataset(files).to_table().to_pylist()
        return rows


def wait(process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Until something holds, while a sweep runs."""
    while not until():
        if process.poll() is not None:
            pytest.fail(f"the sweep ended before: {process.communicate()}")
        time.sleep(0.05)


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.mark.ray
@pytest.mark.slow
def test_the_first_day(tmp_path: Path, site: Path) -> None:
    stranger = Stranger(tmp_path, site)
    opt, muon = (
        next(block.text for block in blocks("docs/optimizers.md") if block.title == name)
        for name in ("my_opt.py", "muon.py")
    )
    files = {"my_lm.py": TRANSFORMER, "layers.py": LAYERS, "my_opt.py": opt, "muon.py": muon}
    stranger.write({**files, "lm.yaml": EXPERIMENT})
    committed = tmp_path / "runs" / "trials"

    # Ctrl-C as soon as something is there.
    process = stranger.begin_sweep()
    wait(process, lambda: any(committed.rglob("*.parquet")))
    status, err = end(process, signal.SIGINT)
    assert status == 130, err
    assert "give the same command again to continue" in err
    first = {row["trial"]: row for row in stranger.rows()}
    assert 0 < len(first) < TRIALS * len(BATCH_SIZES) * len(OPTIMIZERS)

    # A narrower range for one of the optimizers; and a kill that nobody can prepare for.
    process = stranger.begin_sweep(*NARROWED)
    wait(process, lambda: len({row["trial"] for row in stranger.rows()}) > len(first))
    status, _ = end(process, signal.SIGKILL)
    assert status == -signal.SIGKILL

    process = stranger.begin_sweep(*NARROWED)
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


def present(stranger: Stranger) -> set[str]:
    """The trials that the present searches hold."""
    rows = stranger.ask(
        "query",
        "SELECT trial FROM trials JOIN (SELECT study, arg_max(search_id, time) AS search_id "
        "FROM studies GROUP BY study) USING (study, search_id)",
        "runs",
    )
    return {row["trial"] for row in rows}
