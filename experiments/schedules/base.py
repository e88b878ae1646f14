"""What a schedule is: the factor that multiplies the learning rate at each step.

A length may be given as a share of the budget (``decay``), in steps (``decay_steps``), in examples
(``decay_examples``) or in tokens (``decay_tokens``). A trial holds it resolved, in steps of the
study's batch size, since its trajectory depends on nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.amounts import tokens_each
from experiments.errors import ExperimentError
from experiments.optimizers.base import Space
from experiments.search.domains import Domain
from experiments.search.space import Value
from results.optimizers import class_name

Ranges = Mapping[str, Domain | tuple[float, float]]
"""Argument -> its legal values; both ends of a pair are among them."""

_STEPS = "_steps"
_SHARE = Domain(low=0, high=1, closed=True)
_MOST_STEPS = 1e12
"""Largest length in steps: the largest budget."""
_LENGTH = Domain(low=1, high=_MOST_STEPS, closed=True)
_MOST_EXAMPLES = 1e18
_AMOUNT = Domain(low=1, high=_MOST_EXAMPLES, closed=True)
_EXAMPLES, _TOKENS = "_examples", "_tokens"
_WARMUP = "warmup_steps"
WARMUP = ("warmup", _WARMUP, "warmup_examples", "warmup_tokens")
"""The arguments that every schedule has: a share of the budget, steps, examples or tokens."""


class Schedule:
    """A learning-rate schedule: derive from it, and define ``shape``.

    The arguments of ``shape`` after the step are the schedule's metaparameters. One whose name ends
    in ``_steps`` is a length: it is at least 1, and experiments may give it as a share of the
    budget, by its name without ``_steps``, or in ``_examples`` or ``_tokens``. Every schedule takes
    ``warmup`` (or ``warmup_steps`` …) besides, over which the factor rises linearly to 1 before the
    shape begins.
    """

    name: str
    """What loads it: a registered name, or ``file.py:Class``."""
    display_name: str | None = None
    """As an experiment gives it: ``file.py:Class as NAME``."""
    decays_after_warmup: ClassVar[bool] = False
    """Whether the share ``decay`` is of the budget that warmup leaves, so that a share of 1 ends
    with the budget; else it is of all of it."""
    space: ClassVar[Space] = {}
    """The default search space, written as in a file's ``search``."""
    ranges: ClassVar[Ranges] = {}
    """Legal values of the arguments that are not lengths, as ``(low, high)`` with both ends, or a
    ``Domain``. An argument that is not here may be anything."""

    def __init__(self) -> None:
        parameters = [
            p
            for p in list(inspect.signature(self.shape).parameters.values())[1:]
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        self._shape_arguments = tuple(p.name for p in parameters)
        self.defaults: Mapping[str, Value] = {
            p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty
        }
        """Defaults of the arguments; a required one has none."""
        lengths = [name for name in (*self._shape_arguments, _WARMUP) if name.endswith(_STEPS)]
        self._lengths = frozenset(lengths)
        self.shares = {name.removesuffix(_STEPS): name for name in lengths}
        """Name of a share of the budget -> name of the same length in steps."""
        self.amounts = {
            share + unit: name
            for share, name in self.shares.items()
            for unit in (_EXAMPLES, _TOKENS)
        }
        """Name of a length in examples or tokens -> name of the same length in steps."""
        self.domains: Mapping[str, Domain] = {
            **dict.fromkeys(self.shares, _SHARE),
            **dict.fromkeys(lengths, _LENGTH),
            **dict.fromkeys(self.amounts, _AMOUNT),
            _WARMUP: Domain(low=0, high=_MOST_STEPS, closed=True),
            **dict.fromkeys(WARMUP[2:], Domain(low=0, high=_MOST_EXAMPLES, closed=True)),
            **{name: _domain(ends) for name, ends in self.ranges.items()},
        }
        """Legal values of the arguments, by name."""
        self.arguments = frozenset({*self._shape_arguments, *lengths, *self.shares, *self.amounts})
        """Legal metaparameter names, as written in an experiment file."""

    def shape(self, *arguments: Any, **values: Any) -> float:
        """``shape(step, …)``: the factor after warmup.

        ``step`` (0-based) counts from the end of warmup, and the factor is that of the update which
        makes ``step`` into ``step + 1``. Lengths arrive in steps, as whole numbers.
        """
        raise NotImplementedError(f"schedule {self.label} has no shape")

    @property
    def label(self) -> str:
        """Its name in tables, figures and messages: the display name, or else its class."""
        return self.display_name or class_name(self.name)

    @property
    def required(self) -> tuple[str, ...]:
        """Arguments of ``shape`` without a default."""
        return tuple(name for name in self._shape_arguments if name not in self.defaults)

    def other_forms(self, name: str) -> tuple[str, ...]:
        """The other names of the same length, the share first; none of what is not a length."""
        steps = self.shares.get(name) or self.amounts.get(name) or name
        if steps not in self._lengths:
            return ()
        share = steps.removesuffix(_STEPS)
        forms = (share, steps, share + _EXAMPLES, share + _TOKENS)
        return tuple(form for form in forms if form != name)

    def resolve(
        self,
        values: Mapping[str, Value],
        budget_steps: int,
        batch_size: int | None = None,
        tokens_per_example: int | None = None,
    ) -> dict[str, Value]:
        """Shares of the budget, examples and tokens become steps; the rest is passed on.

        A share is at least one step, and so is an amount, unless it is 0 and may be: a warmup's.
        Where a schedule ``decays_after_warmup``, ``decay`` is a share of what warmup leaves.

        Args:
            budget_steps: the budget, in steps of ``batch_size`` examples.
            batch_size: examples a step; needed for lengths in examples and tokens.
            tokens_per_example: needed for lengths in tokens.

        Raises:
            ExperimentError: a share outside [0, 1], or tokens of examples that have none.
        """
        resolved: dict[str, Value] = {}
        for name, value in sorted(values.items(), key=lambda given: given[0] not in WARMUP):
            if name in self.shares:
                if not 0 <= float(value) <= 1:
                    raise ExperimentError(
                        f"schedule {self.name}: {name} is a share of the budget, not {value:g}",
                        hint=f"give {name} in [0, 1], or {self.shares[name]} in steps",
                    )
                steps = budget_steps
                if self.decays_after_warmup and name == "decay":
                    steps -= int(resolved.get(_WARMUP, 0))
                least = 1 if float(value) or name not in WARMUP else 0
                resolved[self.shares[name]] = max(least, round(float(value) * steps))
            elif name in self.amounts:
                step = self.amount_of_step(name, batch_size, tokens_per_example)
                least = 1 if float(value) else 0
                resolved[self.amounts[name]] = max(least, round(float(value) / step))
            else:
                resolved[name] = value
        return resolved

    def amount_of_step(
        self, name: str, batch_size: int | None, tokens_per_example: int | None
    ) -> int:
        """Examples or tokens of one step, whichever ``name``, one of ``amounts``, ends in.

        Raises:
            ExperimentError: the number that it takes is not there.
        """
        if batch_size is None:
            raise ExperimentError(
                f"schedule {self.name}: {name} needs a batch size",
                hint=f"give {self.amounts[name]} in steps",
            )
        if name.endswith(_EXAMPLES):
            return batch_size
        instead = f"use {name.removesuffix(_TOKENS)}{_EXAMPLES}"
        what = f"schedule {self.name}: {name}"
        return batch_size * tokens_each(tokens_per_example, what, instead)

    def factor(self, step: int, metaparameters: Mapping[str, Value]) -> float:
        """The factor of the update that makes step ``step`` (0-based) into ``step + 1``.

        Warmup rises linearly to 1 over its steps, the first update already being larger than 0,
        and the schedule's own shape begins after it.

        Args:
            metaparameters: resolved (``resolve``); those of others are passed over.
        """
        return self.factor_of(metaparameters)(step)

    def factor_of(self, metaparameters: Mapping[str, Value]) -> Callable[[int], float]:
        """``factor`` as a function of the step, for many steps of one trial."""
        warmup = int(metaparameters.get(_WARMUP, 0))
        values = {
            name: int(metaparameters[name]) if name in self._lengths else metaparameters[name]
            for name in self._shape_arguments
            if name in metaparameters
        }
        shape = self.shape

        def factor(step: int) -> float:
            if step < warmup:  # between two steps only where the batch size grows meanwhile
                return min(1.0, (step + 1) / warmup)
            return shape(step - warmup, **values)

        return factor

    def factors_of(
        self, metaparameters: Sequence[Mapping[str, Value]]
    ) -> Callable[[Sequence[int]], Tensor]:
        """``factor`` of many trials, each at a step of its own: ``(trials, 1)`` float64."""
        each = [self.factor_of(m) for m in metaparameters]

        def factors(steps: Sequence[int]) -> Tensor:
            column = [factor(step) for factor, step in zip(each, steps, strict=True)]
            return torch.tensor(column, dtype=torch.float64).view(-1, 1)

        return factors

    def acts_from(self, metaparameters: Mapping[str, Value]) -> int:
        """Updates before the first one whose learning rate is another than a constant one's after
        the same warmup; of a constant one, whose warmup it is about, 0."""
        return 0

    def is_constant(self, metaparameters: Mapping[str, Value]) -> bool:
        """Whether ``factor`` is known to be 1 at every step: then it is not called."""
        return False


def _domain(ends: Domain | tuple[float, float]) -> Domain:
    if isinstance(ends, Domain):
        return ends
    low, high = ends
    return Domain(low=low, high=high, closed=True)


def from_class(name: str, kind: type[Schedule]) -> Schedule:
    """The schedule of a user's class, which ``name`` loads.

    Raises:
        ExperimentError: it has no shape, or one with an argument that every schedule has already.
    """
    if kind.shape is Schedule.shape:
        raise ExperimentError(
            f"schedule {name!r} has no shape",
            hint="define shape(self, step, ...): the learning rate's factor at that step",
        )
    schedule = kind()
    schedule.name = name
    repeated = sorted({*WARMUP} & {*schedule.required, *schedule.defaults})
    if repeated:
        raise ExperimentError(
            f"schedule {name!r}: shape has an argument {repeated[0]}",
            hint="every schedule has a warmup already, before its shape begins: leave it out",
        )
    return schedule
