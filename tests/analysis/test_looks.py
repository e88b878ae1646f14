"""Steps to target with every second look dropped."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.looks import every_second

LOOKS = [1, 2, 4, 8, 16, 32]  # kept: 1, 4, 16


def frames(errors: dict[str, list[float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and measurements of validation error at the first looks; the target is < 0.5."""
    measured = pd.DataFrame(
        [
            {"study": "s", "trial": name, "step": step, "validation_error": error}
            for name, values in errors.items()
            for step, error in zip(LOOKS, values, strict=False)
        ]
    )
    rows = []
    for name, values in errors.items():
        first = next((i for i, value in enumerate(values) if value < 0.5), None)
        rows.append(
            {
                "study": "s",
                "trial": name,
                "target_metric": "validation_error",
                "target_value": 0.5,
                "lower_is_better": True,
                "steps_to_target": np.nan if first is None else LOOKS[first],
                "last_miss": np.nan if first is None else (LOOKS[first - 1] if first else 0),
                "steps_run": LOOKS[len(values) - 1] if first is None else LOOKS[first],
                "stop_reason": "budget" if first is None else "target",
            }
        )
    return pd.DataFrame(rows), measured


def after(errors: dict[str, list[float]]) -> list[tuple[float, float]]:
    trials = every_second(*frames(errors))
    return list(zip(trials["last_miss"], trials["steps_to_target"], strict=True))


def test_kept_looks_stay_and_dropped_ones_move_to_the_next() -> None:
    whole = {"miss": [0.9] * 6}
    assert after({"a": [0.9, 0.9, 0.1], **whole})[0] == (1, 4)
    assert after({"a": [0.9, 0.9, 0.9, 0.1], **whole, "b": [0.9] * 5 + [0.1]})[0] == (4, 16)
    assert after({"a": [0.1], "b": [0.9, 0.9, 0.1]})[0] == (0, 1)


def test_a_trial_that_was_trained_on_is_asked() -> None:
    # Lucky at 8, but a miss at 16: the next kept look that is better is 64.
    lucky = [0.9, 0.9, 0.9, 0.1, 0.9, 0.1]
    trials, measured = frames({"a": lucky, "b": [0.9] * 5 + [0.1]})
    more = pd.DataFrame([{"study": "s", "trial": "a", "step": 64, "validation_error": 0.1}])
    thinned = every_second(trials, pd.concat([measured, more]))
    assert thinned.loc[0, ["last_miss", "steps_to_target"]].tolist() == [16, 64]


def test_trials_without_measurements_or_bracket_stay() -> None:
    trials, measured = frames({"a": [0.9, 0.1], "b": [0.9, 0.1], "c": [0.9, 0.9, 0.9]})
    trials.loc[1, "last_miss"] = np.nan
    thinned = every_second(trials, measured[measured["trial"] != "a"])
    assert thinned["steps_to_target"].tolist()[:2] == [2, 2]
    assert np.isnan(thinned["steps_to_target"][2])


def test_a_dominated_trial_counts_as_run_to_the_kept_look_that_follows() -> None:
    """It was not seen there, but cannot have reached the target before."""
    hits = {"a": [0.9, 0.1], "b": [0.9] * 5 + [0.1]}
    trials, measured = frames({**hits, "cut": [0.9, 0.9], "kept": [0.9] * 3, "far": [0.9] * 6})
    trials.loc[2:, "stop_reason"] = "dominated"
    thinned = every_second(trials, measured)
    assert thinned["steps_run"].tolist()[2:] == [4, 16, 64]
    assert thinned["steps_run"].tolist()[:2] == [2, 32]
