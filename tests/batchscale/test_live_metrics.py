"""``/metrics`` of the live page, read by the rules of Prometheus' text format."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from batchscale.live.metrics import KIND, Speed, text
from batchscale.live.status import nothing
from experiments.execution.ledger import Ledger
from tests.batchscale.test_live_server import Reply, serves
from tests.batchscale.test_live_watch import Case
from tests.results import synthetic

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"(?:\{(?P<labels>(?:[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\\\"\n]|\\[\\\"n])*\",?)*)\})?"
    r" (?P<value>\S+)"
)
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\\\"\n]|\\[\\\"n])*)\"")
_SIGNS = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(page: str) -> Samples:
    """Every sample: each family has one HELP and one TYPE line, which precede all of its samples,
    and the last line ends."""
    assert page.endswith("\n")
    samples: Samples = {}
    described: list[tuple[str, str]] = []
    for line in page.removesuffix("\n").split("\n"):
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            assert (kind, name) not in described
            assert kind == "HELP" or (kind, rest) == ("TYPE", "gauge")
            described.append((kind, name))
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert described[-2:] == [("HELP", match["name"]), ("TYPE", match["name"])]
        labels = frozenset(
            (name, re.sub(r"\\.", lambda sign: _SIGNS[sign[0]], value))
            for name, value in _LABEL.findall(match["labels"] or "")
        )
        assert (match["name"], labels) not in samples
        samples[match["name"], labels] = float(match["value"])
    return samples


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Of the only sample with these labels among its own; None where there is none."""
    wanted = labels.items()
    of = [v for (n, own), v in samples.items() if n == f"batchscale_{name}" and wanted <= set(own)]
    assert len(of) <= 1
    return of[0] if of else None


def group(**changes: Any) -> dict[str, Any]:
    counts = ("wanted", "done", "reached", "infeasible", "dominated", "failed", "running", "left")
    names = {"experiment": "digits", "workload": "digits-mlp", "optimizer": "sgd"}
    return {**names, **{name: place for place, name in enumerate(counts)}, **changes}


def test_what_is_not_known_has_no_sample() -> None:
    samples = parse(text(nothing("runs", "Reading …"), 0.0))
    assert samples == {("batchscale_workers", frozenset()): 0.0}


def test_trials_by_status_and_the_packs() -> None:
    packs = [{"last_word": 90}, {"last_word": 70}, {"last_word": None}]
    status = {"experiments": [group()], "packs": packs, "steps_per_second": 12.5}
    samples = parse(text(status, 100.0))
    for place, name in enumerate(("wanted", "done", "reached", "infeasible", "dominated")):
        assert value(samples, "trials", experiment="digits", status=name) == place
    assert value(samples, "workers") == 3
    assert value(samples, "oldest_heartbeat_seconds") == 30
    assert value(samples, "steps_per_second") == 12.5
    assert len(samples) == 8 + 3


def test_any_name_is_escaped() -> None:
    odd = 'a "b\\n" \\ {x="1"} ,\nü'
    samples = parse(text({"experiments": [group(experiment=odd, optimizer=None)]}, 0.0))
    assert value(samples, "trials", experiment=odd, optimizer="", status="left") == 7


def test_the_library_of_prometheus_reads_the_same() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    status = {"experiments": [group(experiment='a"\\\nb')], "packs": [{"last_word": 1}]}
    page = text(status, 3.0)
    read = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert read == parse(page)


def heartbeats(*rows: tuple[str, int | None, int]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["pack", "step", "training"])
    return frame.astype({"step": "Int64"})


def test_the_speed_is_that_between_heartbeats() -> None:
    speed = Speed()
    assert speed.take(heartbeats(), {}) == 0
    assert speed.take(heartbeats(("a", None, 0)), {"a": 90.0}) is None  # no heartbeat yet
    assert speed.take(heartbeats(("a", 100, 4)), {"a": 100.0}) is None
    for _ in range(2):  # the same heartbeat says the same again
        assert speed.take(heartbeats(("a", 150, 4), ("b", 7, 1)), {"a": 110.0, "b": 108.0}) == 20
    both = heartbeats(("a", 170, 3), ("b", 17, 1))
    assert speed.take(both, {"a": 120.0, "b": 118.0}) == 7
    assert speed.take(heartbeats(("b", 3, 1)), {"b": 128.0}) is None  # from an older snapshot
    assert speed.take(heartbeats(), {}) == 0


def test_the_page_serves_them(tmp_path: Path) -> None:
    case = Case(tmp_path / "runs")
    case.plan()
    case.commit(0, 1)
    ledger = Ledger(str(case.root))
    info = {"experiment": "synthetic", "study": synthetic.study_id("digits-mlp", "sgd", 8)}
    assert ledger.take("pack", ["one", "two"], info, {})
    for step, modified in ((10, 20.0), (40, 10.0)):
        assert ledger.renew("pack", {"one": (step, 0.4), "two": (step, None)})
        written = time.time() - modified
        os.utime(case.root / "claims" / "pack.json", (written, written))
        case.look()
    with serves(case.content) as server:
        reply = Reply(server, "/metrics")
        refused = Reply(server, "/metrics", Host="evil.example")
    assert (reply.status, reply.headers["Content-Type"], refused.status) == (200, KIND, 403)
    samples = parse(reply.body.decode())
    assert value(samples, "trials", status="reached", optimizer="sgd") == 2
    assert value(samples, "trials", status="left") == 2
    assert value(samples, "trials", status="running") == 2
    assert value(samples, "workers") == 1
    assert value(samples, "steps_per_second") == pytest.approx(6.0, rel=0.2)
    assert 9 < (value(samples, "oldest_heartbeat_seconds") or 0) < 60
