"""The release of Shallue et al. 2019 at full size: its import, and its analysis.

The tree is made here, in the release's layout, with a share of its 194,399 trials: a hundredth
unless BATCHSCALE_RELEASE_SHARE says otherwise; 1 takes about 8 GB of disk.

    python -m benchmarks published
    BATCHSCALE_RELEASE_SHARE=1 python -m benchmarks published

BATCHSCALE_RELEASE_TREES names a folder in which the trees stay, one a share: making the whole one
takes minutes. Otherwise they are made and removed in the temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, measured
from tests.results import release

SHARE = 0.01


def share() -> float:
    """The share of the release's trials to measure with."""
    text = os.environ.get("BATCHSCALE_RELEASE_SHARE", str(SHARE))
    if not text.replace(".", "", 1).isdigit() or not 0 < float(text) <= 1:
        raise SystemExit(f"BATCHSCALE_RELEASE_SHARE is {text!r}, no share from above 0 to 1")
    return float(text)


def fill(tree: str, wanted: str) -> int:
    """Write a tree with a share of the release's trials, unless it is there; its measurements."""
    plan = release.plan(float(wanted))
    if not os.path.exists(tree):
        half = f"{tree}.half"
        shutil.rmtree(half, ignore_errors=True)
        release.write(Path(half), plan)
        os.rename(half, tree)
    return sum(sum(study.rows) for study in plan)


def load(tree: str, root: str) -> int:
    """Import the tree; the measurements that arrived."""
    from results.imports import shallue

    done = shallue.import_shallue(tree, root)
    if done.refused:
        raise SystemExit(f"refused {done.refused[0]} and {len(done.refused) - 1} others")
    return done.measurements


def steps(root: str) -> dict[str, float | None]:
    """The least steps to its goal of each study, of the imported trials that came to their end."""
    import results

    run = results.open(root)
    trials = run.with_target(goals(run.studies)).trials
    least = trials[trials["status"] == "COMPLETE"].groupby("study")["steps_to_target"].min()
    return {str(study): None if steps != steps else steps for study, steps in least.items()}


def regimes(root: str) -> int:
    """Locate the regimes of every workload at its goal; how many have them."""
    import results
    from batchscale.run import Run

    run = results.open(root)
    curves = Run(run.with_target(goals(run.studies))).regimes()
    return sum(curve["critical_batch_size"]["value"] is not None for curve in curves)


def goals(studies: Any) -> dict[str, str]:
    """The goal of each experiment: the paper's, else the one that the tree is made for."""
    first = studies.drop_duplicates("experiment").set_index("experiment")["targets"]
    return {
        name: json.loads(text)[0] if isinstance(text, str) else release.GOAL
        for name, text in first.items()
    }


def rows() -> list[Row]:
    """One row a number, for the table in docs/."""
    wanted = share()
    with tempfile.TemporaryDirectory() as folder:
        kept = os.environ.get("BATCHSCALE_RELEASE_TREES")
        tree = f"{kept or folder}/batch_science-{wanted:g}"
        root = f"{folder}/runs"
        count = measured(fill, tree, str(wanted)).value
        loaded = measured(load, tree, root)
        if loaded.value != count:
            raise SystemExit(f"{loaded.value:,} of {count:,} measurements arrived")
        again = measured(load, tree, root)
        selected = measured(steps, root)
        located = measured(regimes, root)
    size = f"{count:,} measurements in 454 studies ({wanted:g} of the release)"
    return [
        Row(
            f"importing the release's tree: {size}",
            f"{count / loaded.seconds:,.0f} a second, {loaded.gigabytes:.2f} GB",
            "> 300,000 a second",
        ),
        Row("the same command again, with all imported", f"{again.seconds:.1f} s"),
        Row(
            "steps to target of all studies from them",
            f"{selected.seconds:.1f} s ({count / selected.seconds:,.0f} a second), "
            f"{selected.gigabytes:.2f} GB",
            "< 10 s and 2 GB at full size",
        ),
        Row(
            f"regimes with intervals of {located.value} of the release's 35 workloads from them",
            f"{located.seconds:.1f} s, {located.gigabytes:.2f} GB",
            "35 in < 60 s at full size",
        ),
    ]
