"""AlgoPerf's table of evaluations as whole curves: a row for each evaluation of each trial.

    python examples/importers/algoperf.py raw_measurements.csv curves.csv targets.json \
        fastmri=32 wmt=128
    batchscale regimes curves.csv --where "workload = 'wmt'"

Their table has a row an evaluation: ``submission``, ``study``, ``workload``, ``trial``,
``global_step`` and metrics as ``validation/ssim``; batch sizes are not in it, and are given by
workload. Rows with ``batch_size``, ``step`` and metrics are curves; ``run`` tells those of one
batch size apart, and ``submission``, a text, makes a curve of each of its values. ``target`` is the
target of each workload, of their ``scoring/workload_targets.json``. Numbers of ``hparams`` (JSON)
that differ between trials are minimized over. Dahl et al. 2023 (arXiv:2306.07179).
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

LOWER_IS_BETTER = ("loss", "ctc_loss", "wer", "ppl")


def table(path: Path, targets: Mapping[str, str], sizes: Mapping[str, int]) -> pd.DataFrame:
    """Their evaluations under the names that batchscale reads."""
    theirs = pd.read_csv(path, low_memory=False)
    workload = theirs["workload"].str.replace("_(jax|pytorch)$", "", regex=True)
    if missing := sorted({*workload} - {*sizes}):
        sys.exit(f"the batch size of {missing[0]} is not known: {missing[0]}=N")
    runs = [name for name in ("submission", "workload", "study", "trial") if name in theirs]
    ours = pd.DataFrame(
        {
            "batch_size": workload.map(sizes),
            "step": theirs["global_step"],
            "run": theirs[runs].astype(str).agg("-".join, axis=1),
            "workload": workload,
            "target": workload.map(targets),
        }
    )
    if "submission" in theirs:
        ours["submission"] = theirs["submission"]
    for name in map(str, theirs):
        split, _, metric = name.partition("/")
        if metric and metric != "num_examples":
            ours[f"{split}_{metric}"] = theirs[name]
    if "hparams" in theirs:
        used = pd.json_normalize(theirs["hparams"].fillna("{}").map(json.loads))
        ours = ours.join(used.select_dtypes("number"))
    return ours


def targets_of(path: Path) -> dict[str, str]:
    """The target of each workload. There a metric that equals its target reaches it, here it has to
    be better: the next number is meant."""
    targets = {}
    for name, config in json.loads(path.read_text())["workloads"].items():
        metric, value = config["target_metric_name"], config["validation_target_value"]
        lower = metric in LOWER_IS_BETTER
        beyond = math.nextafter(value, math.inf if lower else -math.inf)
        targets[name] = f"validation_{metric} {'<' if lower else '>'} {beyond!r}"
    return targets


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("targets", type=Path)
    parser.add_argument("sizes", nargs="+", metavar="WORKLOAD=BATCH_SIZE")
    given = parser.parse_args()
    if not given.source.exists():
        parser.error(f"{given.source} does not exist")
    pairs = [each.partition("=") for each in given.sizes]
    if wrong := [name for name, _, size in pairs if not size.isdecimal()]:
        parser.error(f"{wrong[0]}: its batch size is written {wrong[0]}=32")
    sizes = {name: int(size) for name, _, size in pairs}
    table(given.source, targets_of(given.targets), sizes).to_csv(given.output, index=False)
