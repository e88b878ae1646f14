"""A page that renews itself: what it asks, what it shows, and that the reader's choices stay."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import results
from analysis.figure_data import FigureData, Query
from analysis.report import page, payload
from tests import reported
from tests.browser.conftest import PATIENCE, Seen, watch

pytestmark = pytest.mark.browser
HOME = "http://sweep.test/"
STATUS = {
    "experiments": [
        {"experiment": "e <b>", "workload": "digits-mlp", "optimizer": "sgd", "studies": 9,
         "wanted": 72, "done": 54, "reached": 50, "infeasible": 3, "dominated": 1, "failed": 0,
         "running": 8, "left": 10}
    ],
    "cells": [
        {"experiment": "e", "optimizer": "sgd", "batch_size": 64, "wanted": 8, "done": 8,
         "reached": 5, "failed": 0, "running": 0, "left": 0},
        {"experiment": "e", "optimizer": "sgd", "batch_size": 2048, "wanted": 8, "done": 3,
         "reached": 0, "failed": 0, "running": 5, "left": 5},
        {"experiment": "e", "optimizer": "adam", "batch_size": 64, "wanted": 8, "done": 7,
         "reached": 4, "failed": 1, "running": 0, "left": 0},
    ],
    "failed_trials": [
        {"experiment": "e", "optimizer": "adam", "batch_size": 64, "trial": "abc",
         "error": "ValueError: no <u>", "command": "batchscale trial --from abc --results r"}
    ],
    "begun": "2026-11-22T00:10:00+00:00",
    "packs": [
        {"experiment": "e", "optimizer": "sgd", "batch_size": 64, "trials": 8, "step": 120,
         "best": 0.0513, "machine": "host-1", "silent": False}
    ],
    "seconds_left": 5400,
    "sentence": "54 of 72 trials are done.",
    "error": None,
    "time": "2026-11-22T01:00:00+00:00",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root: Path = reported.write(tmp_path_factory.mktemp("live") / "runs")
    return payload(FigureData(Query(sources=[results.open(root)])))


class Server:
    """Answers for ``HOME``: the page, and whatever ``state`` is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.state: dict[str, Any] | None = {"payload": None, "status": STATUS}
        self.tag = "a"
        self.asked: list[str | None] = []
        self.outside: list[str] = []

    def __call__(self, route: Any) -> None:
        request = route.request
        if request.url == HOME:
            route.fulfill(body=self.text, content_type="text/html; charset=utf-8")
        elif request.url == HOME + "state.json":
            tag = request.headers.get("if-none-match")
            self.asked.append(tag)
            if self.state is None:
                route.abort()
            elif tag == self.tag:
                route.fulfill(status=304)
            else:
                body = json.dumps(self.state)
                headers = {"ETag": self.tag, "Content-Type": "application/json"}
                route.fulfill(body=body, headers=headers)
        else:
            self.outside.append(request.url)
            route.abort()


@pytest.fixture
def served(browser: Any) -> Iterator[tuple[Server, Seen]]:
    server = Server(page(None, live="/state.json"))
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.route("**/*", server)
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    opened.clock.install()
    seen = Seen(opened)
    watch(opened, seen)
    opened.goto(HOME)
    yield server, seen
    context.close()
    assert not server.outside
    assert not [error for error in seen.errors if "ERR_FAILED" not in error]


def again(seen: Seen, server: Server) -> None:
    """Let five seconds pass, and the answer arrive."""
    count = len(server.asked)
    seen.page.clock.run_for(5100)
    for _ in range(200):
        if len(server.asked) > count:
            break
        seen.page.wait_for_timeout(50)
    assert len(server.asked) > count


def test_status_first_then_the_report_and_choices_stay(
    served: tuple[Server, Seen], made: dict[str, Any]
) -> None:
    server, seen = served
    status = seen.page.locator("#status")
    status.get_by_text("54 of 72 trials are done.").wait_for()
    text = status.inner_text()
    for part in ("about 1 h 30 min left", "e <b>", "0.0513", "host-1", "120"):
        assert part in text
    assert status.locator("b, u").count() == 0
    rows = status.locator("table").first.locator("tr").all_inner_texts()
    assert [row.split() for row in rows] == [
        ["64", "2,048"], ["sgd", "✓", "8/8", "▶", "3/8"], ["adam", "!", "7/8"],
    ]  # fmt: skip
    assert status.locator("code").inner_text() == "batchscale trial --from abc --results r"
    assert "Nothing is computed yet" in seen.page.locator("main").inner_text()

    server.state, server.tag = {"payload": made, "status": STATUS}, "b"
    again(seen, server)
    seen.page.locator("#p0-steps").wait_for()
    seen.page.clock.run_for(500)
    seen.drawn("p0-steps")
    seen.page.get_by_role("button", name="momentum", exact=True).click()
    seen.page.get_by_role("button", name="examples", exact=True).click()
    seen.page.locator("summary:visible", has_text="Regimes").click()
    table = seen.page.locator(".numbers:visible table:visible")
    heading = table.locator("th", has_text="critical batch size")
    heading.get_by_role("button").click()
    seen.page.locator("summary", has_text="points, and the trial").first.click()

    later = copy.deepcopy(made)
    later["made"] = "2026-11-22T02:00:00+00:00"
    later["html"] = later["html"].replace("Findings", "Findings, later")
    later["panels"][0]["views"][0]["curves"][0]["points"]["steps"][0] = 999
    server.state, server.tag = {"payload": later, "status": STATUS}, "c"
    again(seen, server)
    seen.page.get_by_text("Findings, later").first.wait_for()
    drawn = seen.traces("p0-steps", "points")
    assert [each["name"] for each in drawn] == ["sgd"]
    assert drawn[0]["y"][0] == 999 * reported.SIZES[0]
    assert drawn[0]["y"][1] == reported.steps_of("sgd", 2) * 2
    assert heading.get_attribute("aria-sort") == "ascending"
    assert seen.page.locator("details[open]", has_text="points, and the trial").count() == 1


def test_an_unfolded_list_stays_open(served: tuple[Server, Seen], made: dict[str, Any]) -> None:
    server, seen = served
    server.state, server.tag = {"payload": made, "status": STATUS}, "b"
    again(seen, server)
    seen.page.locator("#p0 select").first.click()
    asked = len(server.asked)
    seen.page.clock.run_for(5100)
    seen.page.wait_for_timeout(200)
    assert len(server.asked) == asked
    assert seen.page.locator("select:open").count() == 1
    seen.page.keyboard.press("Escape")
    again(seen, server)


def test_nothing_new_is_not_sent_again_and_silence_is_said(served: tuple[Server, Seen]) -> None:
    server, seen = served
    seen.page.locator("#status .sentence").wait_for()
    again(seen, server)
    assert server.asked[:2] == [None, "a"]
    server.state = None
    again(seen, server)
    seen.page.locator("#unheard").wait_for()
    assert "does not answer" in seen.page.locator("#status").inner_text()
    server.state = {"payload": None, "status": {**STATUS, "error": "disk <full>"}}
    server.tag = "d"
    again(seen, server)
    seen.page.get_by_text("disk <full>").wait_for()
    assert seen.page.locator("#unheard").count() == 0
