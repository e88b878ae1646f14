"""Somebody who types commands in a folder of their own."""

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


class Person:
    """Somebody in a folder, with the packages that ``site`` holds."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def begin(self, *words: str, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "batchscale", *words],
            cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *words: str) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        return out

    def fail(self, *words: str, status: int = 1) -> str:
        """What a command that ends with this status prints, its errors last."""
        process = self.begin(*words)
        out, err = process.communicate(timeout=400)
        assert process.returncode == status, (process.returncode, err)
        return out + err

    def ask(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def left(self) -> int:
        """Trials that are missing, as ``status`` says."""
        return sum(int(study["left"]) for study in self.ask("status", "runs"))

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
