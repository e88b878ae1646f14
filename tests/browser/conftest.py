"""A headless Chromium, and pages in it that may ask nothing of any network."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60_000
"""Milliseconds that anything may take: the machine may be busy."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; without one the test is skipped, but fails where BATCHSCALE_BROWSER is 1."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        said = f"no browser here: none of {', '.join(PROGRAMS)} is on the path"
        if os.environ.get("BATCHSCALE_BROWSER") == "1":
            pytest.fail(said)
        pytest.skip(said)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@dataclass
class Seen:
    """A page, and what went wrong in it."""

    page: Any
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def traces(self, chart: str, meta: str) -> list[dict[str, Any]]:
        """What Plotly drew: the traces of a chart that have this ``meta``."""
        script = """([id, meta]) => document.getElementById(id).data
            .filter((trace) => trace.meta === meta)
            .map(({name, x, y, customdata, marker}) => ({name, x, y, customdata, marker}))"""
        found: list[dict[str, Any]] = self.page.evaluate(script, [chart, meta])
        return found

    def layout(self, chart: str) -> dict[str, Any]:
        """Width, colours and titles that a chart was drawn with."""
        script = """(id) => {
            const layout = document.getElementById(id).layout;
            return { width: layout.width, paper: layout.paper_bgcolor,
                     x: layout.xaxis.title.text, y: layout.yaxis.title.text };
        }"""
        found: dict[str, Any] = self.page.evaluate(script, chart)
        return found

    def until(self, script: str) -> None:
        """Wait until ``script`` is true. (Playwright's own way is text that the page must evaluate,
        which its Content-Security-Policy forbids.)"""
        end = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(script):
            assert time.monotonic() < end, f"never came: {script}"
            self.page.wait_for_timeout(50)

    def drawn(self, chart: str) -> None:
        """Unfold and scroll to a chart, and wait until it is drawn."""
        unfold = "(id) => document.getElementById(id).closest('details')?.setAttribute('open', '')"
        self.page.evaluate(unfold, chart)
        self.page.locator(f"#{chart}").scroll_into_view_if_needed()
        self.page.wait_for_selector(f"#{chart}[data-drawn]")


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Seen]]:
    """``show(path, width=360, color_scheme="dark")``: open a file. At the end of the test nothing
    may have gone wrong in it, and it may have asked for nothing else."""
    opened: list[tuple[Any, Seen]] = []

    def open_(path: Path, *, width: int = 1280, **options: Any) -> Seen:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        seen = Seen(page)
        opened.append((context, seen))
        own = path.as_uri()

        def each(route: Any) -> None:
            if route.request.url.split("#")[0] == own:
                route.continue_()
            else:
                seen.outside.append(route.request.url)
                route.abort()

        context.route("**/*", each)
        watch(page, seen)
        page.goto(own)
        return seen

    yield open_
    for context, _ in opened:
        context.close()
    for _, seen in opened:
        assert not seen.errors
        assert not seen.outside


def watch(page: Any, seen: Seen) -> None:
    """Note every error and warning of a page."""
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            seen.errors.append(message.text)
            if message.type in ("error", "warning") or message.text.startswith("WARN")
            else None
        ),
    )
