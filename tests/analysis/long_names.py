"""Results whose workloads, metrics and optimizers have names longer than a figure has room for."""

from __future__ import annotations

import json
from typing import Any

from tests.analysis.gallery import Row

WORKLOAD = "image_classification_of_a_company_that_names_its_workloads_after_all_of_their_parts"
"""80 letters; those of a results folder differ in what they begin with."""
METRIC = "validation_error_of_the_moving_average_of_all_weights_at_the_largest_crop"
OPTIMIZERS = {
    "sgd": "stochastic_gradient_descent_plain_tuned_",
    "momentum": "stochastic_gradient_descent_heavy_tuned_",
    "nesterov": "stochastic_gradient_descent_nesterov_tun",
    "adam": "adaptive_moments_with_a_bias_correction_",
}
"""40 letters each, alike at both ends."""


def long(row: Row) -> Row:
    """A row of a study, a trial or a measurement with long names in it."""
    if "metrics" in row:
        metrics = dict(row["metrics"])  # of noise scales there are more
        return {**row, "metrics": {METRIC: metrics.pop("validation_error"), **metrics}}
    changed: dict[str, Any] = {
        "workload": (row["workload"] + "_" + WORKLOAD)[: len(WORKLOAD)],
        "optimizer": OPTIMIZERS[row["optimizer"]],
    }
    if "target_metric" in row:
        changed["target_metric"] = METRIC
    if "targets" in row:
        texts = json.dumps(row["targets"]) if isinstance(row["targets"], list) else row["targets"]
        changed["targets"] = texts.replace("validation_error", METRIC)
    return {**row, **changed}
