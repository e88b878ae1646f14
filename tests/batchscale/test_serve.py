"""``batchscale serve`` as it is typed: it begins, answers, is interrupted, and is run twice."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.figure_data import Query
from batchscale.cli import analysis as commands
from batchscale.live import server as serving
from batchscale.live import service
from batchscale.live.service import LiveReport
from batchscale.live.watch import NAME, Watch
from tests.batchscale.conftest import Command, snapshot
from tests.batchscale.test_bad_input import clear
from tests.test_imports import ROOT

PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs at 8080 on this machine is none of these tests'."""
    monkeypatch.setattr(serving, "PORT", 18_080)
    monkeypatch.setattr(service, "PORT", 18_080)


def state_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}state.json", timeout=PATIENCE) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def until(asked: Callable[[], Any]) -> Any:
    """What is asked, as soon as it is something."""
    end = time.monotonic() + PATIENCE
    while not (found := asked()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as soon as requests are answered, and nothing that is computed meanwhile."""

    def forever(_: LiveReport) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveReport, "forever", forever)
    monkeypatch.setattr(Watch, "start", lambda _: None)


@pytest.mark.usefixtures("interrupted")
def test_it_says_where_and_ends_on_ctrl_c(command: Command, small: Path) -> None:
    answer = command("serve", small, "--port", "0")
    assert answer.status == 130
    assert answer.out.startswith(f"serving {small} at http://127.0.0.1:")
    assert answer.out.endswith("/ (Ctrl-C ends it)\n")
    assert answer.err == ""


@pytest.mark.usefixtures("interrupted")
def test_what_is_still_computed_does_not_keep_it(
    command: Command, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    ended = threading.Event()
    monkeypatch.setattr(commands, "end_process", lambda: left.append(1))
    working = threading.Thread(target=ended.wait, name=NAME)
    working.start()
    assert command("serve", small, "--port", "0").status == 130
    ended.set()
    working.join()
    assert left == [1]
    assert command("serve", small, "--port", "0").status == 130
    assert left == [1]


@pytest.mark.usefixtures("interrupted", "here")
def test_the_default_folder_need_not_be_there(command: Command) -> None:
    answer = command("serve", "--port", "0")
    assert answer.status == 130
    assert answer.out.startswith("serving results/runs at ")


@pytest.mark.usefixtures("interrupted")
def test_others_on_the_network_are_warned_of(command: Command, small: Path) -> None:
    answer = command("serve", small, "--port", "0", "--host", "0.0.0.0")
    assert answer.status == 130
    assert answer.err == (
        "warning: everyone who reaches 0.0.0.0 over a network can read this page\n"
    )


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("there", [True, False])
def test_it_opens_a_browser(
    command: Command, small: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or there)
    answer = command("serve", small, "--port", "0", "--open")
    assert opened[0] in answer.out
    assert answer.err == ("" if there else f"no browser was found: open {opened[0]}\n")


@pytest.mark.usefixtures("interrupted")
def test_a_second_one_takes_the_next_port(command: Command, small: Path) -> None:
    with LiveReport(Query(sources=[small])) as first:
        port = first.server.port
        answer = command("serve", small)
        assert answer.status == 130
        assert answer.err.startswith("port 18080 is in use: serving at port 180")
        answer = command("serve", small, "--port", port)
    clear(answer, f"cannot listen at port {port} of 127.0.0.1: Address", hint="--port 0")


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["curve.csv"], "curve.csv is a file, not a results folder", "curves of your own"),
        (["."], ". is not a results folder", "--results"),
        (["RUNS", "--port", "65536"], "--port 65536 is not a port", "65535"),
        (["RUNS", "--port", "-1"], "--port -1 is not a port", "65535"),
        (["RUNS", "--host", "no.such.host.invalid"], "not an address of this machine", "127.0.0.1"),
        (["RUNS", "--target", "error"], "error", "validation_error < 0.05"),
        (["nowhere://x"], "cannot open nowhere://x", "s3://"),
    ],
)
def test_wrong_words_are_one_line(
    command: Command, here: Path, small: Path, words: list[str], says: str, hint: str
) -> None:
    (here / "curve.csv").write_text("batch_size,steps\n8,100\n16,55\n32,40\n")
    clear(command("serve", *(small if word == "RUNS" else word for word in words)), says, hint=hint)


@pytest.mark.slow
def test_the_report_comes_and_nothing_is_written(small: Path) -> None:
    before = snapshot(small)
    with (
        LiveReport(Query(sources=[small]), port=0) as it,
        LiveReport(Query(sources=[small]), port=0) as other,
    ):
        for each in (it, other):
            threading.Thread(target=each.server.serve_forever, args=(0.01,), daemon=True).start()
        state = until(lambda: (s := state_of(it.server.url))["payload"] and s)
        with urllib.request.urlopen(it.server.url) as answer:
            page = answer.read().decode()
        status = until(lambda: (s := state_of(other.server.url)["status"])["experiments"] and s)
        for each in (it, other):
            each.server.shutdown()
    assert state["status"]["error"] is None
    assert state["status"]["complete"]
    assert status["experiments"] == state["status"]["experiments"]
    labels = {c["label"] for p in state["payload"]["panels"] for c in p["views"][0]["curves"]}
    assert len(labels) == 2
    assert "digits-softmax" in page
    assert '"/state.json"' in page
    assert snapshot(small) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"where": "bach_size = 8"}, "bach_size"),
        ({"tolerance": -1.0}, "tolerance -1 is not above 0"),
        ({"estimator": "mean"}, "'mean'"),
        ({"by": ["widht"]}, "'widht'"),
    ],
)
def test_what_the_results_refuse_is_told_on_the_page(
    small: Path, options: dict[str, Any], says: str
) -> None:
    """Which columns there are is not known before the first trials."""
    said: list[str] = []
    it = LiveReport(Query(sources=[small], **options), port=0, say=said.append)
    it.watch.update()
    error = it.watch._content.status["error"]
    it.server.server_close()
    assert says in error
    assert said == [error]


def start(folder: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """``serve`` in a process of its own, and the address that it says."""
    program = subprocess.Popen(
        [sys.executable, "-m", "batchscale", "serve", str(folder), *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert program.stdout is not None
    ready, _, _ = select.select([program.stdout], [], [], PATIENCE)
    line = program.stdout.readline() if ready else ""
    if " at http" not in line:
        program.kill()
        pytest.fail(f"it did not begin: {line}{program.communicate()[1]}")
    return program, line.split(" at ")[1].split(" ")[0]


@pytest.mark.slow
def test_ctrl_c_ends_the_process_without_a_word(small: Path) -> None:
    program, url = start(small, "--port", "0")
    try:
        until(lambda: state_of(url)["status"]["experiments"])
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (program.returncode, out, err) == (130, "", "")
