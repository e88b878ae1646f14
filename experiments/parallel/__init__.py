"""How one model spreads over the ranks of a worker group."""

from experiments.parallel.base import ParallelLayout
from experiments.parallel.ranks import SOLO, Ranks, TorchRanks
from experiments.parallel.registry import get, names

__all__ = ["SOLO", "ParallelLayout", "Ranks", "TorchRanks", "get", "names"]
