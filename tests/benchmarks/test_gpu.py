"""The measurements on a GPU run in small on a CPU, and their numbers reach the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from validation.page import blocks
from workloads.data import present


@pytest.mark.slow
def test_groups_run_in_small_and_are_not_measured_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = ["twins", "demo", "digits"]
    arguments = [*groups, "--device", "cpu", "--small", "--out", str(tmp_path)]
    gpu.main(arguments)
    said = capsys.readouterr().out
    measured = json.loads((tmp_path / "gpu.json").read_text())
    assert list(measured) == groups
    assert {value.split(";")[0] for value in measured["twins"]["rows"].values()} == {
        "differ by 0.0e+00"
    }
    for name, group in measured.items():
        assert group["rows"].keys() <= gpu.GROUPS[name].wanted.keys()
        assert all(f"{what}: {value}" in said for what, value in group["rows"].items())
    assert "model-steps/s" in measured["digits"]["rows"]["digits-mlp, pack of 64, batch 8"]
    assert gpu.NOT_MEASURED in (tmp_path / "gpu.md").read_text()  # the other groups
    gpu.main(arguments)
    assert capsys.readouterr().out.startswith("wrote")
    with pytest.raises(ValueError, match="ran with --small"):
        gpu.merge(tmp_path / "gpu.json", tmp_path / "page.md")


@pytest.mark.slow
@pytest.mark.skipif(not present("cifar10"), reason="needs CIFAR-10 in BATCHSCALE_DATA")
def test_the_groups_of_images_run_in_small(tmp_path: Path) -> None:
    names = ["resnet8", "resnet18", "sweep"]
    arguments = [*names, "--device", "cpu", "--small", "--out", str(tmp_path)]
    gpu.main(arguments)
    gpu.main(["sweep", *arguments[3:]])  # a sweep goes on
    measured = json.loads((tmp_path / "gpu.json").read_text())
    assert list(measured) == names
    for name in names:
        assert measured[name]["rows"].keys() <= gpu.GROUPS[name].wanted.keys()
        assert not any("not measured" in value for value in measured[name]["rows"].values())
    assert "4 trials in" in str(measured["sweep"])
    assert "to batch 128" in str(measured["sweep"])


def test_absent_data_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.download.reachable", lambda _: False)
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path))
    out = ["--device", "cpu", "--small", "--out", str(tmp_path / "out")]
    gpu.main(["resnet8", *out])
    rows = json.loads((tmp_path / "out" / "gpu.json").read_text())["resnet8"]["rows"]
    assert set(rows) == set(gpu.GROUPS["resnet8"].wanted)
    assert all(value.startswith("not measured: data set cifar10") for value in rows.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_without_a_gpu_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.main(["--out", str(tmp_path / "none")])
    assert capsys.readouterr().out == "not measured: no GPU\n"
    assert not (tmp_path / "none").exists()
    assert {row.measured for row in gpu.rows()} == {gpu.NOT_MEASURED}


def test_measured_groups_are_merged_into_the_page(tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", tmp_path / "gpu.json"
    page.write_text("# Page\n\n<!-- made: gpu -->\nold\n<!-- end -->\n\nas it was\n")
    rows = {"the demo in this process": "12.0 s"}
    file.write_text(json.dumps({"demo": {"machine": "A GPU.", "small": False, "rows": rows}}))
    gpu.merge(file, page)
    assert page.read_text().endswith("\n\nas it was\n")
    found = blocks(page.read_text())
    assert "A GPU. (demo)" in found["gpu"]
    assert "| the demo in this process | 12.0 s | ≤ 20 s |" in found["gpu"]
    assert found["gpu"].count(gpu.NOT_MEASURED) == len(gpu.rows()) - 1


def test_each_name_is_known() -> None:
    with pytest.raises(SystemExit):
        gpu.main(["demos"])
