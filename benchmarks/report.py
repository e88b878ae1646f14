"""A report of 100 curves: how large it is, and how long a headless Chromium takes to open it.

Opened is from the request to the load event: all of the file is read, texts, tables and controls
are there. The first chart comes after plotly.js has run, which is timed alone beside it: an empty
page that runs it and does nothing else. The curves are those of ``own``, ten times over and more.
"""

from __future__ import annotations

import copy
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from analysis.report import render

RUNS = 7
CURVES = 100


def multiplied(made: dict[str, Any], *, panels: int, curves: int) -> dict[str, Any]:
    """A payload of ``panels`` workloads with ``curves`` curves each, from those that one has."""
    from analysis.report.payload import spare
    from analysis.report.render import contents

    many = copy.deepcopy(made)
    many["panels"] = [_panel(made["panels"][0], i, curves) for i in range(panels)]
    spare(many)
    many["html"] = contents(many)
    return many


def _panel(panel: dict[str, Any], place: int, curves: int) -> dict[str, Any]:
    view = panel["views"][0]
    each = len(view["curves"])
    again = {**copy.deepcopy(view), "id": f"p{place}v0"}
    again["curves"] = [
        {**copy.deepcopy(view["curves"][i % each]), "label": f"curve {i}", "look": i}
        for i in range(curves)
    ]
    again["findings"] = [
        {**view["findings"][i % each], "label": f"curve {i}", "look": i} for i in range(curves)
    ]
    for table in again["tables"]:
        times = -(-curves // each)
        table["rows"] = [
            [[f"curve {n}: {row[0][0]}", row[0][1]], *row[1:]]
            for n in range(times)
            for row in table["rows"]
        ]
    goals = [{"target": view["target"], "view": again["id"], "reason": None}]
    heading = f"workload {place}"
    return {**panel, "id": f"p{place}", "heading": heading, "goals": goals, "views": [again]}


def rows() -> list[dict[str, object]]:
    """Size and time of a report of ten workloads of ten curves, and of one with all hundred."""
    from analysis.report import page, payload
    from batchscale.curves import material

    made = payload(material(["own"]))
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for panels in (10, 1):
            many = multiplied(made, panels=panels, curves=CURVES // panels)
            file = Path(folder) / "report.html"
            file.write_text(page(many), encoding="utf-8")
            what = f"{panels} workloads of {CURVES // panels} curves"
            what = f"one workload of {CURVES} curves" if panels == 1 else what
            size = file.stat().st_size / 1e6
            found.append(
                {"what": f"size, {what}", "measured": f"{size:.1f} MB", "wanted": "< 10 MB"}
            )
            found.append({"what": f"opened, {what}", "measured": _opened(file), "wanted": "< 2 s"})
    return found


def _opened(file: Path) -> str:
    """The median of ``RUNS``, each in a page of its own: until all of it is read; and until the
    first chart is drawn, scrolled to at once."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return "not measured: no browser"
    from playwright.sync_api import sync_playwright

    bare = file.with_name("bare.html")
    bare.write_text(f"<!DOCTYPE html><script>{render.plotly()}</script>", encoding="utf-8")
    loads, charts, alone = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(RUNS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            began = time.perf_counter()
            page.goto(file.as_uri(), wait_until="load", timeout=120_000)
            loads.append(time.perf_counter() - began)
            page.locator("#p0-steps").scroll_into_view_if_needed()
            page.wait_for_selector("#p0-steps[data-drawn]", timeout=120_000, state="attached")
            charts.append(time.perf_counter() - began)
            began = time.perf_counter()
            page.goto(bare.as_uri(), wait_until="load", timeout=120_000)
            alone.append(time.perf_counter() - began)
            page.close()
        browser.close()
    seconds = [f"{statistics.median(each):.2f} s" for each in (loads, charts, alone)]
    return f"{seconds[0]} (first chart after {seconds[1]}; plotly.js alone {seconds[2]})"
