"""Rules that derive metaparameters at a batch size from those at a base one: ``rule`` in the grid.

``{learning_rate: sqrt, from: 64}``: at batch size B = k · 64

- ``learning_rate``: ``none``, that of the base; ``sqrt``, √k times it (Krizhevsky 2014,
  arXiv:1404.5997; Malladi et al. 2022, arXiv:2205.10287); ``linear``, k times it (Goyal et al.
  2017, arXiv:1706.02677).
- ``beta2``: ``half_life``, β₂^k: the half-life of the average, in examples or tokens, is that of
  the base (Marek et al. 2025, arXiv:2507.07101).
- ``weight_decay``: ``time_scale``, so that B / (learning rate · weight decay), the time scale of
  the weights in examples or tokens, is that of the base (Wang & Aitchison 2024, arXiv:2405.13698).

With a rule for the learning rate nothing is tuned at B: its studies train the table of the base,
row by row, each row by the rule, and the row that is best at the base tells what the rule costs.
Without, each study is tuned, and what the rule names is so many times what its table says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments import search
from experiments.errors import ExperimentError, nearest
from experiments.optimizers import Optimizer
from experiments.plan import Value
from experiments.search.space import Dimension

NAME = "rule"
_FROM = "from"
_KINDS = {
    "learning_rate": ("none", "sqrt", "linear"),
    "beta2": ("half_life",),
    "weight_decay": ("time_scale",),
}
_EXAMPLE = "for example: rule: {learning_rate: sqrt, from: 64}; or none"
_FIGURES = 9


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule as an experiment writes it."""

    base: int
    """The batch size whose metaparameters are taken."""
    kinds: tuple[tuple[str, str], ...]
    """Metaparameter and its rule, in the order of the table above."""

    @classmethod
    def parse(cls, value: Any) -> Rule | None:
        """Read a rule; ``None`` for ``none``.

        Raises:
            ExperimentError: an unknown metaparameter or rule, or no base.
        """
        if value == "none":
            return None
        if not isinstance(value, Mapping) or not value:
            raise ExperimentError(f"{value!r} is not a rule", hint=_EXAMPLE)
        for name, kind in value.items():
            if name != _FROM and name not in _KINDS:
                hint = nearest(str(name), [*_KINDS, _FROM])
                raise ExperimentError(f"no rule for {name!r}", hint=hint)
            if name in _KINDS and kind not in _KINDS[name]:
                hint = nearest(str(kind), _KINDS[name])
                raise ExperimentError(f"{name} has no rule {kind!r}", hint=hint)
        base = value.get(_FROM)
        if not isinstance(base, int) or isinstance(base, bool) or base < 1:
            message = f"from: {base!r} is not a batch size" if _FROM in value else "no from"
            raise ExperimentError(f"{message}: the base batch size", hint=_EXAMPLE)
        kinds = tuple((name, str(value[name])) for name in _KINDS if name in value)
        if not kinds:
            raise ExperimentError("a rule for nothing", hint=_EXAMPLE)
        return cls(base=base, kinds=kinds)

    def __str__(self) -> str:
        """As results record it, in the ``technique``."""
        return f"{', '.join(f'{name} {kind}' for name, kind in self.kinds)}, from {self.base}"

    @property
    def transfers(self) -> bool:
        """Whether the learning rate follows, so that nothing is tuned but at the base."""
        return "learning_rate" in dict(self.kinds)

    def check(
        self,
        batch_sizes: Sequence[int | str] | None,
        optimizers: Sequence[Optimizer],
        method: str,
    ) -> None:
        """
        Args:
            batch_sizes: in examples; ``None`` where they are not yet known (``check_base``).

        Raises:
            ExperimentError: the base is not among the batch sizes; an optimizer has no such
                metaparameter; a method of search whose table depends on results.
        """
        if batch_sizes is not None:
            self.check_base(batch_sizes)
        for name, optimizer in ((n, o) for n, _ in self.kinds for o in optimizers):
            if name not in optimizer.arguments:
                message = f"rule {self}: optimizer {optimizer.label} has no {name}"
                raise ExperimentError(message, hint="sweep that optimizer in another experiment")
        if self.transfers and search.block(method):
            raise ExperimentError(
                f"rule {self}: method {method} draws points by results, so that batch sizes share "
                "no table",
                hint="method: sobol, random, grid or points",
            )

    def check_base(self, batch_sizes: Sequence[int | str]) -> None:
        """
        Raises:
            ExperimentError: the base is not among the batch sizes.
        """
        if self.base not in batch_sizes:
            raise ExperimentError(
                f"rule {self}: {self.base} is not among the batch sizes of the grid",
                hint=f"add {self.base}: what is best there is taken elsewhere",
            )

    def applied(
        self, values: Mapping[str, Value], batch_size: int, defaults: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The metaparameters at ``batch_size`` from those at the base.

        Args:
            defaults: the optimizer's, for what a rule names and ``values`` lacks.
        """
        if batch_size == self.base:
            return dict(values)
        derived = dict(values)
        for name, _ in self.kinds:
            if name in values or name in defaults:
                derived[name] = self.at(
                    name, float(values.get(name, defaults.get(name, 0))), batch_size
                )
        return derived

    def at(self, name: str, value: float, batch_size: int) -> float:
        """The value at ``batch_size`` of a metaparameter that has ``value`` at the base.

        To nine significant figures (of 1 - β₂), since the last bits of powers differ between
        machines, and a trial's identity must not.
        """
        kinds, k = dict(self.kinds), batch_size / self.base
        if name not in kinds or k == 1:
            return value
        rate = {"sqrt": math.sqrt(k), "linear": k}.get(kinds.get("learning_rate", ""), 1.0)
        if name == "learning_rate":
            return value if rate == 1 else _rounded(value * rate)
        if name == "weight_decay":
            return _rounded(value * k / rate)
        return round(1 - _rounded(-math.expm1(k * math.log(value))), 15) if value else 0.0

    def ranges(self, space: Mapping[str, Dimension], batch_size: int) -> dict[str, Dimension]:
        """The ranges at ``batch_size`` of those at the base, for the results' search space."""
        return {
            name: replace(
                dimension,
                bounds=(
                    self.at(name, dimension.bounds[0], batch_size),
                    self.at(name, dimension.bounds[1], batch_size),
                ),
                choices=tuple(
                    self.at(name, float(value), batch_size) for value in dimension.choices
                ),
            )
            if name in dict(self.kinds)
            else dimension
            for name, dimension in space.items()
        }


def _rounded(x: float) -> float:
    return float(f"{x:.{_FIGURES - 1}e}")
