"""The engines: how the models of a pack take their steps. ``module`` is the plain way."""

from experiments.engines.base import Engine
from experiments.engines.selection import check_contract, choose, make_engine, stacking_refusal

__all__ = ["Engine", "check_contract", "choose", "make_engine", "stacking_refusal"]
