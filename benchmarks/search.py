"""The cost under dominated stopping: steps of the demo against `keep: off` and a lower bound.

The bound of a study is N · S_(k): each of its N trials must run to the k-th smallest steps to
target, k being `keep`, to be known as none of the k best. What earlier rounds train before S_(k)
is known, and rows drawn for infeasible ones, come on top.
"""

from __future__ import annotations

import tempfile

import pandas as pd

KEEP = 4
SIZES = (8, 16, 48)
DEMO: tuple[str, ...] = ()
"""Settings, as of ``--set``, that all the sweeps have."""


def trials(*settings: str, pack_size: int | None = None) -> pd.DataFrame:
    """The trials of the demo with other settings."""
    from experiments.config.compile import load
    from experiments.execution.sweep import sweep
    from results import open as open_results

    with tempfile.TemporaryDirectory() as folder:
        of = load("digits", [*DEMO, *settings])
        sweep(of, results=folder, address="auto", pack_size=pack_size, num_cpus=2)
        return open_results(folder).trials


def bound(trials: pd.DataFrame) -> int:
    """N · S_(k), summed over the studies; the whole budget where fewer than k have reached it."""
    total = 0
    for _, study in trials.groupby("study"):
        best = study["steps_to_target"].nsmallest(KEEP)
        last = best.iloc[-1] if best.notna().sum() == KEEP else study["budget_steps"].iloc[0]
        total += int(study["trials_wanted"].iloc[0] * last)
    return total


def rows() -> list[dict[str, object]]:
    """One row a pack size, for the table in docs/."""
    off = trials("keep=off")
    rows: list[dict[str, object]] = [
        {"what": "steps of the demo, keep: off", "measured": f"{off['steps_run'].sum():,}"}
    ]
    for size in SIZES:
        ours = trials(f"keep={KEEP}", pack_size=size)
        steps, least = int(ours["steps_run"].sum()), bound(ours)
        print(f"packs of at most {size}: {steps:,} steps, {least:,} at least", flush=True)
        rows.append(
            {
                "what": f"steps of the demo, keep: {KEEP}, packs of at most {size}",
                "measured": f"{steps / off['steps_run'].sum():.2f} of keep: off, "
                f"{steps / least:.2f} of the lower bound",
                "wanted": "≤ 0.4, ≤ 1.15",
            }
        )
    return [{"wanted": "", **row} for row in rows]
