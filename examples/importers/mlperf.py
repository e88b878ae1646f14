"""MLPerf's reference convergence points as steps to a target: a run a row.

    git clone https://github.com/mlcommons/logging
    python examples/importers/mlperf.py logging points.csv
    batchscale regimes points.csv --where "workload = 'bert'"

They are in ``mlperf_logging/rcp_checker/<usage>_<version>/rcps_<benchmark>.json``. Versions repeat
the points of those before: the newest of each benchmark is taken, also where it was renamed. Rows
of one batch size are repeated runs; ``submitter`` and ``recipe``, texts, make a curve of each of
their values. Mattson et al. 2020 (arXiv:1910.01500).

What the files call "Epochs to converge" are samples, tokens, steps or epochs, by benchmark and
version, and the sizes that turn epochs and tokens into samples are not in them: they are below.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

UNITS = {
    "sample": "bert deepseekv3_671b dlrmv4 flux1 gpt_oss_20b llama2_70b_lora llama31_405b "
    "llama31_8b openfold qwen35_397b_grpo stable_diffusion unet3d",
    "epoch": "cosmoflow deepcam dlrm dlrm_dcnv2 gnn maskrcnn oc20 resnet retinanet rgat rnnt ssd",
    "token": "gpt3",
}
UNTIL = {"stable_diffusion": ((4, 0), "step"), "unet3d": ((3, 1), "epoch")}
"""Benchmarks that counted in another unit before a version."""
RENAMED = {"gnn": "rgat", "sd": "stable_diffusion", "ssd": "retinanet"}
SSD = (2, 0)
"""Before this version, ssd was another model on another data set."""
EXAMPLES = {
    "resnet": 1_281_167,
    "retinanet": 1_170_301,
    "dlrm": 4_195_197_692,
    "dlrm_dcnv2": 4_195_197_692,
}
"""Examples an epoch. Steps are epochs / batch size where they are not known: batch sizes alone can
then be compared with other curves."""
TOKENS = 2048
"""Tokens of an example of gpt3."""
CHANGED = {"cosmoflow": (32, 64)}
"""Batch sizes with changed hyperparameters: not comparable with the others."""
OUTLIER = 5.0
"""A run above this many times the median of its point is an error of the file, and left out."""

Version = tuple[int, ...]


def table(path: Path) -> pd.DataFrame:
    """The points of the newest version of each benchmark, under the names that batchscale reads."""
    newest: dict[str, tuple[Version, list[dict[str, Any]]]] = {}
    for version, name, entry in entries(path):
        if name not in newest or version > newest[name][0]:
            newest[name] = version, []
        if version == newest[name][0]:
            newest[name][1].append(entry)
    if not newest:
        sys.exit(f"there is no rcps_*.json below {path}")
    points = [(name, version, entry) for name, (version, all_) in newest.items() for entry in all_]
    return pd.DataFrame([row for point in points for row in runs(*point)])


def entries(path: Path) -> Iterator[tuple[Version, str, dict[str, Any]]]:
    """Each point with its version and the name that its benchmark has now."""
    for file in sorted(path.rglob("rcps_*.json")):
        numbers = re.search(r"[0-9.]+$", file.parent.name)
        version = tuple(map(int, numbers[0].split("."))) if numbers else ()
        for entry in json.loads(file.read_text()).values():
            name = entry["Benchmark"]
            old = name == "ssd" and version < SSD
            yield version, name if old else RENAMED.get(name, name), entry


def runs(name: str, version: Version, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each run of a point."""
    size, used = entry["BS"], entry.get("Hyperparams") or {}
    unit = next((unit for unit, names in UNITS.items() if name in names.split()), "")
    until, before = UNTIL.get(name, ((), ""))
    unit = before if version < until else unit
    if "samples to converge" in entry:
        unit, values = "sample", entry["samples to converge"]
    else:
        values = entry["Epochs to converge"]
    if not unit or (unit in ("sample", "token") and min(values) < size) or min(values) <= 0:
        sys.exit(f"{name}, batch size {size}: what {min(values):g} counts is not known")
    each = {"epoch": EXAMPLES.get(name, 1), "token": 1 / TOKENS, "step": size}.get(unit, 1)
    for value in values:
        if value <= OUTLIER * median(values):
            yield {
                "workload": name,
                "batch_size": size,
                "steps": value * each / size,
                "optimizer": str(used.get("opt_name", used.get("optimizer", ""))).lower(),
                "submitter": entry.get("Creator", ""),
                "recipe": "changed" if size in CHANGED.get(name, ()) else "",
                "precision": str(entry.get("Precision", "")).lower(),
            }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    if not given.source.exists():
        parser.error(f"{given.source} does not exist")
    table(given.source).to_csv(given.output, index=False)
