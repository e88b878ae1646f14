"""How the learning rate goes over time: the packaged schedules, and the user's."""

from experiments.registry import Registry
from experiments.schedules.base import Schedule, from_class

__all__ = ["SCHEDULES", "Schedule", "get", "label", "names"]

SCHEDULES = Registry(
    "schedule",
    __name__,
    Schedule,
    user_base=("batchscale.Schedule", Schedule),
    user_contract="its shape(step, ...) returns the factor",
    adopt=from_class,
)
get, label, names = SCHEDULES.get, SCHEDULES.label, SCHEDULES.names
