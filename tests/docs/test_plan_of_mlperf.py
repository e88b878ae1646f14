"""The plan of MLPerf's ResNet-50 that docs/findings/benchmarks.md tells of has these numbers."""

from __future__ import annotations

import re

import pytest

import batchscale as bs
from tests.batchscale.blocks import ROOT, blocks

PAGE = "docs/findings/benchmarks.md"
ROW = re.compile(
    r"^\| (\d+) \| (\d+) \| ([\d.]+) \[([\d.]+), ([\d.]+)\] \| ([\d.]+) \| ([\d.]+) \|$", re.M
)


def test_the_table_is_what_is_planned() -> None:
    (times,) = (block for block in blocks(PAGE) if block.title == "resnet.csv")
    names, *cells = (line.split(",") for line in times.lines)
    step_time = [dict(zip(names, map(float, row), strict=True)) for row in cells]
    devices = [int(row["devices"]) for row in step_time]
    where = "workload = 'resnet' AND submitter = 'NVIDIA'"
    (plan,) = bs.plan("published", where=where, devices=devices, step_time=step_time)["plans"]
    table = ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(table) == len(plan["choices"]) == len(step_time)
    for row, choice in zip(table, plan["choices"], strict=True):
        n, size, value, low, high, published, ratio = map(float, row)
        assert (n, size) == (choice["devices"], choice["batch_size"])
        seconds = choice["seconds"]
        planned = [seconds[end] for end in ("value", "low", "high")]
        assert planned == pytest.approx([value, low, high], rel=5e-3)
        assert ratio == pytest.approx(value / published, abs=6e-3)
        assert 0.85 < ratio < 1.15
