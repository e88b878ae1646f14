"""The quantities that are reported of a curve."""

QUANTITIES = (
    "perfect_scaling_until",
    "maximal_parallelism_from",
    "critical_batch_size",
    "min_steps",
    "min_examples",
)
"""The five quantities of a curve, in the order of ``regimes --json``."""
