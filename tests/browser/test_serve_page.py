"""The live page in a real browser, over a sweep that really runs: it renews itself, asks nobody
else, complains of nothing, and is read-only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import results
from experiments.execution.ledger import Ledger
from tests import reported
from tests.batchscale.test_serve import PATIENCE, start
from tests.test_imports import ROOT

pytestmark = pytest.mark.browser


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a page over a folder that is not there yet."""
    program, url = start(tmp_path / "runs", "--port", "0")
    yield url, tmp_path / "runs"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE)
    assert (program.returncode, out) == (130, "")
    assert "Traceback" not in err


class Heard:
    """What a page asks for and complains of."""

    def __init__(self, page: Any, url: str) -> None:
        self.outside: list[str] = []
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda line: self.errors.append(line.text) if line.type == "error" else None
        )
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((url, "data:", "blob:"))
                else self.outside.append(asked.url)
            ),
        )


@contextmanager
def _sweep(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep into ``folder`` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "batchscale", "sweep", "digits-small", "--address", "none",
         "--results", str(folder), *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()


def test_the_page_follows_a_sweep(served: tuple[str, Path], browser: Any) -> None:
    url, folder = served
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE * 1000)
    heard = Heard(page, url)
    page.goto(url)
    page.get_by_text("Waiting for a sweep").wait_for()
    page.evaluate("window.mark = 'never loaded again'")
    with _sweep(folder, "--set", "trials=4") as sweep:
        page.get_by_role("heading", name="How digits-mlp scales with batch size").wait_for()
        assert sweep.wait(PATIENCE) == 0
    page.get_by_text("32 of 32 trials: complete.").wait_for()
    # A claim as of a worker: the sweep itself may train between two looks of the page.
    study, ledger = results.open(folder).studies["study"].iloc[0], Ledger(str(folder))
    assert ledger.take("pack", ["one"], {"experiment": "digits-small", "study": study}, {})
    page.get_by_text("1 pack trains now").wait_for()
    ledger.release("pack")
    page.get_by_text("32 of 32 trials: complete.").wait_for()
    first = page.inner_text("main")
    with _sweep(folder) as sweep:
        assert sweep.wait(PATIENCE) == 0
    page.get_by_text("64 of 64 trials: complete.").wait_for()
    page.get_by_text("64 trials of 8 studies").wait_for()
    assert page.inner_text("main") != first
    assert "critical batch size" in page.inner_text("main")
    assert page.evaluate("window.mark") == "never loaded again"
    toggle = page.get_by_role("button", name="momentum").first
    toggle.click()
    pressed = toggle.get_attribute("aria-pressed")
    (folder / "trials" / "digits-small" / "broken.parquet").write_bytes(b"PAR1 none")
    page.get_by_text("broken.parquet is not a whole Parquet file").wait_for()
    assert (
        page.get_by_role("button", name="momentum").first.get_attribute("aria-pressed") == pressed
    )
    (folder / "trials" / "digits-small" / "broken.parquet").unlink()
    page.get_by_text("broken.parquet").wait_for(state="detached")
    assert not heard.outside
    assert not heard.errors


def test_it_fits_a_phone_and_outlives_the_server(tmp_path: Path, browser: Any) -> None:
    program, url = start(reported.write(tmp_path / "runs"), "--port", "0")
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(PATIENCE * 1000)
    heard = Heard(page, url)
    page.goto(url)
    page.get_by_role("heading", name="Findings").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=PATIENCE)
    # The server has gone: the page says so, and what it shows stays.
    page.get_by_text("the server does not answer").wait_for()
    assert page.get_by_role("heading", name="Findings").is_visible()
    assert not heard.outside
