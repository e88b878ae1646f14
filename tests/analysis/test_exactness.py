"""Whatever the order of training, what counts as known is what training on would have given."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.curves.estimators import OrderStatistics
from analysis.curves.runs import Runs

BUDGET = 60
LOOKS = np.array([1, 2, 3, 4, 6, 8, 10, 13, 17, 22, 28, 36, 46, BUDGET])

tables = st.lists(st.sampled_from([*LOOKS, np.inf]), min_size=1, max_size=24).flatmap(
    lambda true: st.tuples(
        st.just(true),
        st.permutations(range(len(true))),
        st.integers(1, 6),
        st.integers(1, len(true)),
        st.integers(1, 8),
    )
)


def train(true: list[float], order: list[int], keep: int | None, pack: int) -> pd.DataFrame:
    """Trials trained in packs, each of which knows what the ones before have reached: a trial
    stops at the first look at which ``keep`` others have reached the target and it has not."""
    rows: dict[int, dict[str, object]] = {}
    known: list[float] = []
    for start in range(0, len(order), pack):
        active = list(order[start : start + pack])
        for look in LOOKS:
            for trial in [one for one in active if true[one] == look]:
                rows[trial] = {"steps_to_target": float(look), "steps_run": look}
                known.append(float(look))
                active.remove(trial)
            known.sort()
            if keep is not None and len(known) >= keep and look >= known[keep - 1]:
                for trial in active:
                    rows[trial] = {"steps_run": look, "stop_reason": "dominated"}
                active = []
        for trial in active:
            rows[trial] = {"steps_run": BUDGET, "stop_reason": "budget"}
    reasons = [rows[i].get("stop_reason", "target") for i in range(len(true))]
    absent = dict.fromkeys(("last_miss", "enlargement"))
    return pd.DataFrame(
        {
            "steps_to_target": [rows[i].get("steps_to_target", np.nan) for i in range(len(true))],
            "steps_run": [rows[i]["steps_run"] for i in range(len(true))],
            "stop_reason": reasons,
            "status": ["INCOMPLETE" if one == "dominated" else "COMPLETE" for one in reasons],
            "index": range(len(true)),
            "keep": keep,
            **absent,
        }
    )


def sample(frame: pd.DataFrame, n: int, keep: int | None) -> OrderStatistics:
    return OrderStatistics.of(Runs.of(frame), np.arange(n), keep)


@given(tables)
def test_known_order_statistics_are_those_of_training_on(
    case: tuple[list[float], list[int], int, int, int],
) -> None:
    true, order, keep, n, pack = case
    found = sample(train(true, order, keep, pack), n, keep)
    truth = np.sort([steps for steps in true[:n] if np.isfinite(steps)])
    if found.exact:
        assert found.steps.tolist() == truth[: found.known].tolist()
        assert found.known > 0 or not len(truth)
    elif len(found.hit):
        assert found.steps[0] >= truth[0]


@given(tables)
def test_of_all_trials_the_keep_best_are_known_with_their_ties(
    case: tuple[list[float], list[int], int, int, int],
) -> None:
    true, order, keep, _, pack = case
    found = sample(train(true, order, keep, pack), len(true), keep)
    truth = np.sort([steps for steps in true if np.isfinite(steps)])
    last = truth[keep - 1] if len(truth) >= keep else np.inf
    assert found.exact
    assert found.steps.tolist() == truth[truth <= last].tolist()
    off = sample(train(true, order, None, pack), len(true), None)
    assert off.steps.tolist() == truth.tolist()
