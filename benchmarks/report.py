"""A report of 100 curves: how large it is, and how long a headless Chromium takes to open it.

Opened is from the request until the reader sees a curve: all of the file is read, texts, tables and
controls are there, and the first panel's picture is decoded and on the screen, scrolled to at once.
The interactive chart takes its place once plotly.js has run; that is timed too, and plotly.js
alone: an empty page that runs it and does nothing else. The curves are fitted from trials that are
made up, 16 to a batch size, each curve with a knee of its own.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from analysis.report.page import plotly
from benchmarks.harness import Row
from tests import reported

RUNS = 7
CURVES = 100
TRIALS = 16
SIZES = tuple(2**k for k in range(12))


def fill(root: Path, *, workloads: int, curves: int, trials: int = TRIALS) -> Path:
    """Results of ``workloads`` with ``curves`` optimizers each, every one with a known knee."""
    from results.store import Store

    store, rng = Store(root), np.random.default_rng(0)
    for place in range(workloads):
        studies, rows = [], []
        for number in range(curves):
            least, critical = rng.uniform(50, 500), 2 ** rng.uniform(3, 8)
            for size in SIZES:
                group = {
                    "workload": f"workload-{place}", "dataset": f"data-{place}",
                    "optimizer": f"optimizer-{number}", "batch_size": size,
                    "study": f"{place}-{number}-{size}",
                }  # fmt: skip
                studies.append({
                    "experiment": f"e{place}", **group, "targets": [reported.TARGET],
                    "search_space": {"learning_rate": {"log": [0.001, 10.0]}}, "dimensions": 1,
                })  # fmt: skip
                rows += _trials(group, least * (1 + critical / size), trials, rng)
        store.add_studies(studies)
        store.commit(f"e{place}", measurements=[], trials=rows)
    return root


def _trials(
    group: dict[str, Any], best: float, trials: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """One in four never reaches the target; the others take from the least steps upwards."""
    rows = []
    for i, luck in enumerate(rng.exponential(0.5, trials)):
        steps = None if i % 4 == 3 else round(best * float(np.exp(luck)))
        rate = float(np.exp(rng.uniform(np.log(0.001), np.log(10.0))))
        row = reported.trial_row(group, i, rate, steps, None if steps is None else steps - 1)
        rows.append({**row, "steps_run": steps or round(20 * best)})
    return rows


def rows() -> list[Row]:
    """Size and time of a report of ten workloads of ten curves, and of one with all hundred."""
    from analysis.figure_data import FigureData, Query
    from analysis.report import page, payload

    table: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for workloads in (10, 1):
            curves = CURVES // workloads
            root = fill(Path(folder) / f"runs-{workloads}", workloads=workloads, curves=curves)
            file = Path(folder) / "report.html"
            began = time.perf_counter()
            data = FigureData(Query(sources=[root]))
            file.write_text(page(payload(data, pictures=True)), encoding="utf-8")
            seconds = time.perf_counter() - began
            what = f"{workloads} workloads of {curves} curves"
            what = f"one workload of {CURVES} curves" if workloads == 1 else what
            size = file.stat().st_size / 1e6
            for name, measured, wanted in (
                ("written", f"{seconds:.0f} s", ""),
                ("size", f"{size:.1f} MB", "< 10 MB"),
                ("opened", _opened(file), "< 2 s"),
            ):
                table.append(Row(f"{name}, {what}", measured, wanted))
    return table


def _opened(file: Path) -> str:
    """The medians of ``RUNS``, each in a page of its own: until a curve is seen, and until the
    chart answers."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return "not measured: no browser"
    from playwright.sync_api import sync_playwright

    bare = file.with_name("bare.html")
    bare.write_text(f"<!DOCTYPE html><script>{plotly()}</script>", encoding="utf-8")
    seen, charts, alone = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(RUNS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(_WATCH)
            page.goto(file.as_uri(), wait_until="load", timeout=120_000)
            page.wait_for_selector("#p0-steps[data-drawn]", timeout=120_000, state="attached")
            seen.append(page.evaluate("seen.curve / 1000"))
            charts.append(page.evaluate("seen.chart / 1000"))
            page.goto(bare.as_uri(), wait_until="load", timeout=120_000)
            alone.append(page.evaluate("seen.load / 1000"))
            page.close()
        browser.close()
    seconds = [f"{statistics.median(each):.2f} s" for each in (seen, charts, alone)]
    return f"{seconds[0]} (interactive after {seconds[1]}; plotly.js alone {seconds[2]})"


_WATCH = """window.seen = {};
addEventListener("load", async () => {
  seen.load = performance.now();
  const node = document.querySelector("#p0-steps");
  if (!node) return;
  node.scrollIntoView({ behavior: "instant" });
  await node.querySelector("img").decode();
  await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
  seen.curve = performance.now();
  new MutationObserver(() => { seen.chart ||= performance.now(); }).observe(
    node, { attributes: true, attributeFilter: ["data-drawn"] });
});"""
"""When, in ms: all is read; the picture, scrolled to at once, is decoded and a frame has been
painted since; the chart has taken its place."""
