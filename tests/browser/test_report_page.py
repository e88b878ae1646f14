"""The report in a real browser: what is drawn, what each control does, how it reads elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import results
from analysis.figure_data import FigureData, Query
from analysis.report import page, payload
from analysis.report.palette import STYLES
from benchmarks.report import fill
from tests import reported
from tests.browser.conftest import Seen

pytestmark = pytest.mark.browser
Show = Callable[..., Seen]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = reported.write(tmp_path_factory.mktemp("report") / "runs")
    found: dict[str, Any] = payload(FigureData(Query(sources=[results.open(root)])))
    return found


@pytest.fixture(scope="module")
def file(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(made), encoding="utf-8")
    return path


def points(seen: Seen, label: str) -> dict[str, Any]:
    return next(each for each in seen.traces("p0-steps", "points") if each["name"] == label)


def steps(label: str) -> list[int]:
    return [reported.steps_of(label, size) for size in reported.SIZES]


def test_it_draws_what_was_measured(show: Show, file: Path, made: dict[str, Any]) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    for label in ("sgd", "momentum"):
        drawn = points(seen, label)
        assert drawn["x"] == list(reported.SIZES)
        assert drawn["y"] == steps(label)
    # The line is the fit that the regimes rest on, as ``Regimes.steps`` computes it.
    fit = made["panels"][0]["views"][0]["curves"][0]["fit"]
    line = seen.traces("p0-steps", "fit")[0]
    for x, y in zip(line["x"], line["y"], strict=True):
        power = fit["a"] * fit["k"]
        known = fit["min_steps"] * (1 + (fit["critical_batch_size"] / x) ** power) ** (1 / fit["k"])
        assert y == pytest.approx(known, rel=1e-9)
    assert len(seen.traces("p0-steps", "strips")) >= 4
    assert seen.layout("p0-steps")["x"] == "batch size (examples)"
    offered = seen.page.evaluate(
        "[...document.querySelectorAll('#p0-steps .modebar-btn')].map((b) => b.dataset.title)"
    )
    assert "Reset axes" in offered
    assert not [title for title in offered if "Share" in title or "plotly" in title.lower()]
    for chart in ("p0-rates", "p0-budget", "p0-tried"):
        seen.drawn(chart)
    assert seen.traces("p0-rates", "rates")[0]["x"] == list(reported.SIZES)
    assert seen.traces("p0-budget", "mean")
    (tried,) = seen.traces("p0-tried", "reached")
    assert tried["y"] == [reported.steps_of("sgd", 16, place) for place in range(8)]


def test_charts_far_down_are_drawn_when_they_are_scrolled_to(show: Show, file: Path) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    assert seen.page.locator("#p0-tried[data-drawn]").count() == 0
    seen.drawn("p0-tried")


def test_curves_are_switched_off_and_on(show: Show, file: Path) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    button = seen.page.get_by_role("button", name="momentum", exact=True)
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert {each["name"] for each in seen.traces("p0-steps", "points")} == {"sgd"}
    button = seen.page.get_by_role("button", name="momentum", exact=True)
    assert button.get_attribute("aria-pressed") == "false"
    assert button.evaluate("node => node === document.activeElement")
    seen.page.keyboard.press("Enter")
    assert {each["name"] for each in seen.traces("p0-steps", "points")} == {"sgd", "momentum"}


def test_examples_and_normalization(show: Show, file: Path, made: dict[str, Any]) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    seen.page.get_by_role("button", name="examples", exact=True).click()
    known = [size * least for size, least in zip(reported.SIZES, steps("sgd"), strict=True)]
    assert points(seen, "sgd")["y"] == known
    assert seen.layout("p0-steps")["y"] == "examples to target"
    seen.page.get_by_role("button", name="steps", exact=True).click()
    seen.page.get_by_label("Normalize").select_option("size")
    seen.page.get_by_label("Batch size").first.select_option("4")
    for label in ("sgd", "momentum"):
        base = reported.steps_of(label, 4)
        assert points(seen, label)["y"] == pytest.approx([each / base for each in steps(label)])
    assert "over those at batch size 4" in seen.layout("p0-steps")["y"]
    seen.page.get_by_label("Normalize").select_option("least")
    regimes = made["panels"][0]["views"][0]["curves"][0]["regimes"]
    # Of a curve whose large end is not level the least that was measured.
    least = regimes["min_steps"]["value"] or min(steps("sgd"))
    assert points(seen, "sgd")["y"] == pytest.approx([each / least for each in steps("sgd")])


def test_another_target(show: Show, file: Path, made: dict[str, Any]) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    (panel,) = made["panels"]
    easier = next(view for view in panel["views"] if view["target"] == reported.EASIER)
    picker = seen.page.get_by_label("Target")
    hard = picker.locator("option", has_text=reported.HARDER)
    assert hard.get_attribute("disabled") is not None
    assert "stopped" in (hard.get_attribute("title") or "")
    assert "were stopped at" in seen.page.locator(".reason").inner_text()
    picker.select_option(easier["id"])
    assert points(seen, "sgd")["y"] == easier["curves"][0]["points"]["steps"]
    told = easier["findings"][0]["parts"][0]["text"]
    shown = seen.page.locator(".numbers:visible")
    assert shown.count() == 1
    assert told in shown.inner_text()
    assert seen.page.locator(".numbers:visible").get_attribute("data-view") == easier["id"]


def test_a_published_overlay(show: Show, file: Path, made: dict[str, Any]) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    assert not seen.traces("p0-steps", "published")
    seen.page.get_by_label("Published overlay").select_option("3")
    (overlay,) = seen.traces("p0-steps", "published")
    assert overlay["x"] == made["published"][3]["batch_size"]
    assert overlay["y"] == made["published"][3]["steps"]
    seen.page.get_by_label("Published overlay").select_option("")
    assert not seen.traces("p0-steps", "published")


def test_tables_sort_by_what_they_say(show: Show, file: Path) -> None:
    seen = show(file)
    seen.page.locator("summary:visible", has_text="Regimes").click()
    table = seen.page.locator(".numbers:visible table:visible")
    heading = table.locator("th", has_text="critical batch size")
    column = heading.evaluate("node => node.cellIndex")

    def cells() -> list[float]:
        script = (
            """(table, i) => [...table.tBodies[0].rows].map((row) => +row.cells[i].dataset.by)"""
        )
        found: list[float] = table.evaluate(script, column)
        return found

    assert heading.get_attribute("aria-sort") == "none"
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert cells() == sorted(cells())
    heading.get_by_role("button").focus()
    seen.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert cells() == sorted(cells(), reverse=True)


def test_every_trial_of_a_search_is_picked(show: Show, file: Path) -> None:
    seen = show(file)
    seen.drawn("p0-tried")
    seen.page.locator("#p0-tried-curve").select_option("momentum")
    seen.page.locator("#p0-tried-size").select_option("64")
    (tried,) = seen.traces("p0-tried", "reached")
    assert tried["y"] == [reported.steps_of("momentum", 64, place) for place in range(8)]


def at_point(seen: Seen, label: str, size: int) -> tuple[float, float]:
    script = """([label, size]) => {
        const node = document.getElementById("p0-steps"), box = node.getBoundingClientRect();
        const trace = node.data.find((each) => each.meta === "points" && each.name === label);
        const full = node._fullLayout, i = trace.x.indexOf(size);
        return [box.left + full.xaxis._offset + full.xaxis.d2p(trace.x[i]),
                box.top + full.yaxis._offset + full.yaxis.d2p(trace.y[i])];
    }"""
    x, y = seen.page.evaluate(script, [label, size])
    return x, y


def test_a_hover_shows_the_trial_behind_a_point(show: Show, file: Path) -> None:
    seen = show(file)
    seen.drawn("p0-steps")
    seen.page.mouse.move(*at_point(seen, "sgd", 2))
    box = seen.page.locator("#p0-steps .hoverlayer .hovertext")
    box.wait_for()
    text = box.text_content()
    for part in ("sgd, batch size 2", f"{reported.steps_of('sgd', 2)} steps to target",
                 "learning_rate 0.05", "N = 8, 0 % of 8 infeasible", "trial sgd-2-0",
                 "missed still at"):  # fmt: skip
        assert part in text
    seen.page.mouse.click(*at_point(seen, "sgd", 2))
    card = seen.page.locator("#p0-trial")
    assert "trial sgd-2-0" in card.inner_text()
    assert card.locator("code").inner_text().startswith("batchscale trial --from sgd-2-0 --results")
    seen.drawn("p0-training")
    steps = reported.steps_of("sgd", 2)
    (training,) = seen.page.evaluate("document.getElementById('p0-training').data")
    assert training["x"][-1] == steps
    assert training["y"][-1] == pytest.approx(0.04, rel=0.02)
    card.get_by_role("button", name="Close").click()
    assert card.inner_text() == ""


def test_dark_by_the_system_and_by_choice(show: Show, file: Path) -> None:
    seen = show(file, color_scheme="dark")
    seen.drawn("p0-steps")
    back = "getComputedStyle(document.body).backgroundColor"
    assert seen.page.evaluate(back) == "rgb(20, 24, 27)"
    assert seen.layout("p0-steps")["paper"] == "#14181b"
    assert points(seen, "sgd")["marker"]["color"][0] == "#4ba6de"
    theme = seen.page.locator("#theme")
    theme.click()
    theme.click()
    assert theme.inner_text() == "theme: light"
    assert seen.page.evaluate(back) == "rgb(255, 255, 255)"
    assert seen.layout("p0-steps")["paper"] == "#ffffff"
    assert points(seen, "sgd")["marker"]["color"][0] == STYLES[0].colour


def test_a_phone_scrolls_down_alone(show: Show, file: Path) -> None:
    seen = show(file, width=360)
    for chart in ("p0-steps", "p0-rates", "p0-budget", "p0-tried"):
        seen.drawn(chart)
        assert seen.layout(chart)["width"] <= 360
    seen.page.locator("summary", has_text="points, and the trial").first.click()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 360


def test_on_paper_it_is_light_whole_and_without_controls(show: Show, file: Path) -> None:
    seen = show(file, width=700, color_scheme="dark")
    seen.page.emulate_media(media="print", color_scheme="dark")
    seen.until("document.querySelectorAll('.chart[data-drawn]').length === 4")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert seen.layout("p0-steps")["paper"] == "#ffffff"
    assert seen.page.locator(".controls:visible, .tools:visible").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 700
    assert seen.page.pdf(format="A4").startswith(b"%PDF")
    seen.page.emulate_media(media="screen", color_scheme="dark")
    seen.until("document.getElementById('p0-steps').layout.paper_bgcolor === '#14181b'")


def test_without_javascript_text_and_picture_are_there(
    show: Show, tmp_path: Path, made: dict[str, Any]
) -> None:
    file = tmp_path / "drawn.html"
    root = reported.write(tmp_path / "runs", measured=False)
    drawn = payload(FigureData(Query(sources=[results.open(root)])), pictures=True)
    file.write_text(page(drawn), encoding="utf-8")
    seen = show(file, java_script_enabled=False)
    found = seen.page.locator(".numbers:visible").inner_text()
    for each in made["panels"][0]["views"][0]["findings"]:
        assert each["parts"][0]["text"] in found
    assert seen.page.locator("table:visible").count() == 0
    seen.page.locator("summary:visible", has_text="Regimes").click()
    assert seen.page.locator("table:visible").count() == 1
    shown = seen.page.locator("#p0-steps img").bounding_box()
    assert shown["width"] == seen.page.locator("#p0-steps").bounding_box()["width"] > 800
    assert shown["height"] > 300
    assert seen.page.locator("button:visible, select:visible").count() == 0


def test_nothing_in_a_text_becomes_an_element(show: Show, tmp_path: Path) -> None:
    bad = "</script><img src=x onerror=alert(1)><b>x</b>"
    root = reported.write(
        tmp_path / "runs", workload=f"w {bad}", optimizers=(f"sgd {bad}",), trials=2,
        yaml=bad, notes=(bad,), measured=False,
    )  # fmt: skip
    file = tmp_path / "bad.html"
    file.write_text(
        page(payload(FigureData(Query(sources=[results.open(root)])), title=bad)), encoding="utf-8"
    )
    seen = show(file)
    seen.drawn("p0-steps")
    seen.page.mouse.move(*at_point(seen, seen.traces("p0-steps", "points")[0]["name"], 128))
    seen.page.locator("#p0-steps .hoverlayer .hovertext").wait_for()
    assert seen.page.locator("img").count() == 0
    assert seen.page.locator("h1").inner_text() == bad


def test_steps_below_one_are_told(show: Show, tmp_path: Path) -> None:
    """Of a source that does not say how many examples an epoch has."""
    file = tmp_path / "gnn.html"
    found = results.open("published").where("workload = 'gnn'")
    file.write_text(page(payload(FigureData(Query(sources=[found])))), encoding="utf-8")
    seen = show(file)
    seen.drawn("p0-steps")
    assert seen.layout("p0-steps")["y"] == "steps to target, relative"


def test_a_hundred_curves(show: Show, tmp_path: Path) -> None:
    root = fill(tmp_path / "runs", workloads=5, curves=20, trials=4)
    file = tmp_path / "hundred.html"
    made = payload(FigureData(Query(sources=[results.open(root)])), pictures=True)
    file.write_text(page(made), encoding="utf-8")
    assert file.stat().st_size < 10e6
    seen = show(file)
    # The curves are seen before the charting library has run; a chart takes their place.
    assert seen.page.locator("#p4-steps img").evaluate("(one) => one.decode().then(() => true)")
    seen.drawn("p0-steps")
    assert seen.page.locator("section.panel").count() == 5
    assert seen.page.locator("#p4-steps[data-drawn]").count() == 0
    seen.drawn("p4-steps")
    assert seen.page.locator("#p4-steps img").count() == 0
    # All could be switched on; so many at once would be read by nobody.
    assert len(seen.traces("p0-steps", "points")) == 12
    seen.page.locator("#p0").get_by_role("button", name="all", exact=True).click()
    assert len(seen.traces("p0-steps", "points")) == 20


def test_the_module_has_its_own_scope(show: Show, file: Path) -> None:
    """What the page's script names does not meet what others name."""
    seen = show(file)
    seen.drawn("p0-steps")
    assert seen.page.evaluate("typeof chosen + typeof stepsFigure") == "undefinedundefined"
