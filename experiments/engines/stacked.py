"""The stacked engine: many models of one shape at once, by ``torch.func``.

All weights lie in one tensor ``(models, size)``; a parameter is a view of it, ``(models, *shape)``.
Each parameter starts at a multiple of 64 bytes in every row, so that matrix kernels, which choose
their path by alignment, treat every model alike: on a CPU a trial's bits do not depend on the
pack it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.engines.base import Engine, gather
from experiments.engines.capture.stacked_program import (
    StackInTraining,
    advance_captured,
    rates_of,
)
from experiments.engines.metric_sums import MetricSums, measure, watched
from experiments.engines.randomness import RandomDraws, key_of
from experiments.engines.stack import Stack, StackedStep, width_of
from experiments.engines.stacked_batches import DrawnRows, StackedBatches
from experiments.engines.stacked_techniques import StackedTechniques
from experiments.engines.updates import Update, make_update
from experiments.plan import Trial
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import FIRST, SplitParts
from experiments.training.micro_batch import chunk_size, micro_batch
from experiments.training.splits import Order
from experiments.training.study_context import StudyContext
from workloads import Batch

_IN_STEPS = ("before_step", "select", "perturbed", "gradient", "after_step")
"""Hooks of techniques that are called in a step, besides those of the forward pass."""
MODELS = 64
"""Number of models for which a micro-batch's memory is bounded, in every pack."""


class StackedEngine(Engine):
    """Rows of the stack: the active trials first, then those stopped and not yet squeezed out.

    The stack is squeezed only when a narrower width of a fixed ladder suffices, so that one
    traced step serves many packs.
    """

    kind = "stacked"

    def __init__(self, context: StudyContext, trials: Sequence[Trial]) -> None:
        super().__init__(context, trials)
        models = [context.model(trial) for trial in trials]
        self.base = models[0].train()
        self.stack = Stack.of(models, width_of(len(trials)))
        self.draws = RandomDraws.of(context, self.base)
        self.stepper = StackedStep(context, self.base, self.stack, self.draws)
        self.micro = micro_batch(context, self.base, MODELS)
        self.chunk = chunk_size(context, self.base, MODELS)
        # Rows up to the stack's width are the last trial again, their results unread.
        self._rows = [*trials, *[trials[-1]] * (self.stack.width - len(trials))]
        orders = {t.id: context.order(t) for t in trials}
        self._orders: list[Order] = [orders[t.id] for t in self._rows]
        self._steps = [0] * self.stack.width
        self._batches = StackedBatches(context)
        self.update: Update = make_update(context, self._rows, self.stack)
        self.techniques = StackedTechniques(
            [context.techniques_of(t) for t in self._rows], self.stack
        )
        self.loss_sum = torch.zeros(self.stack.width, dtype=torch.float64, device=context.device)

    @property
    def steps(self) -> list[int]:
        return self._steps[: len(self.trials)]

    def advance(self, steps: int) -> None:
        with self.context.precision.products():
            self._advance_in_phases(steps)

    def _advance_in_phases(self, steps: int) -> None:
        ramp = self.context.study.ramp
        if ramp is None:
            self._advance(steps, range(self.stack.width))
            return
        while steps:
            changes = [at for step in self.steps if (at := ramp.steps_to_change(step))]
            taken = min([steps, *changes])
            self._advance_each_size(taken, [ramp.size(step) for step in self.steps])
            steps -= taken

    def _advance_each_size(self, steps: int, sizes: Sequence[int]) -> None:
        """Train each trial for steps of its batch size, ``sizes``.

        Where trials at different steps have different ones, the whole stack is trained once for
        each size; then the rows of other sizes, which have seen examples of one of this size, are
        set back.
        """
        for size in dict.fromkeys(sizes):
            first = sizes.index(size)
            others = [row for row, of_row in enumerate(sizes) if of_row != size]
            saved, orders = self.copy(others) if others else [], list(self._orders)
            sources = [first if row in others else row for row in range(len(sizes))]
            self._advance(steps, [*sources, *[first] * (self.stack.width - len(sizes))])
            for row, state in zip(others, saved, strict=True):
                self.restore(row, state)
            self._orders = orders

    @torch.no_grad()
    def _advance(self, steps: int, sources: Sequence[int]) -> None:
        """Take steps of one batch size; ``sources``: whose examples each row sees."""
        context, first = self.context, self._steps[sources[0]]
        captured, drawn = self._in_training(sources), self._drawn(sources)
        if advance_captured(captured, steps, lambda: self._batches.take(drawn, steps)):
            self.took(steps)
            return
        constant, factors, rates = rates_of(context, self._rows)
        has_techniques = context.techniques.define(*_IN_STEPS)
        selects, perturbs = (context.techniques.define(h) for h in ("select", "perturbed"))
        weights, rates_there = None, rates.to(context.device)
        for done, batch in self._batches.take(drawn, steps):
            of_step = rates_there
            if has_techniques or not constant:
                steps_before = [step + done for step in self._steps]
            if not constant:
                of_step = (rates * factors(steps_before)).to(context.device)
            if has_techniques:
                steps_made = torch.tensor(steps_before, device=context.device)
                self.techniques.begin(steps_before, of_step)
                self.techniques.before_step(steps_made)
            if selects:
                weights = self._selected(batch, done, first, steps_made)
            self._gradient(batch, done, first, weights)
            if perturbs:
                trained = self.stack.weights.clone()
                self.techniques.perturb(steps_made)
                self._gradient(batch, done, first, weights)
                self.stack.weights.copy_(trained)
            if has_techniques:
                self.techniques.gradient(steps_made)
            self.update.step(of_step)
            if has_techniques:
                self.techniques.after_step(steps_made)
        self.took(steps)

    def _in_training(self, sources: Sequence[int]) -> StackInTraining:
        """The stack as captured steps need it; ``sources``: whose examples each row sees."""
        return StackInTraining(
            stepper=self.stepper,
            update=self.update,
            loss_sum=self.loss_sum,
            micro=self.micro,
            trials=self._rows,
            taken=self._steps,
            first=self._steps[sources[0]],
            indices=partial(self._batches.indices, self._drawn(sources)),
        )

    def took(self, steps: int) -> None:
        """Count steps that all rows have taken."""
        self._steps = [step + steps for step in self._steps]

    def _gradient(self, batch: Batch, done: int, step: int, weights: Tensor | None) -> None:
        """Make the stack's gradient that of the global batch.

        Args:
            batch: this rank's share; ``weights``: of its examples in the loss, if not equal ones.
            done: steps taken since ``step``, which was the first row's.
        """
        size = self.context.study.batches.size(step)
        if batch[0].shape[1] == 0:
            self.stack.gradient.zero_()
        for low, part in self._parts(batch):
            random = self._random(done, low, step)
            of_part = weights if weights is None else weights[:, low : low + self.micro]
            sums = self.stepper.add_gradient(part, random, size, weights=of_part, first=low == 0)
            self.loss_sum.add_(sums)
        self.context.layout.reduce_gradients([self.stack.gradient])

    def _parts(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """The micro-batches of this rank's share, each with its first place there."""
        examples = batch[0].shape[1]
        for low in range(0, examples, self.micro):
            part = batch
            if examples > self.micro:
                part = tuple(x[:, low : low + self.micro] for x in batch)
            yield low, part

    def _selected(self, batch: Batch, done: int, step: int, steps_made: Tensor) -> Tensor:
        """The weights of this rank's examples in the loss, ``(models, share)``."""
        layout, share = self.context.layout, self.context.part(step)
        parts = [
            self.stepper.losses(part, self._random(done, low, step))
            for low, part in self._parts(batch)
        ]
        losses = self.stack.weights.new_zeros(
            self.stack.width, self.context.study.batches.size(step)
        )
        if parts:
            losses[:, share] = torch.cat(parts, dim=1)
        return self.techniques.select(layout.all_reduce(losses), steps_made)[:, share]

    def _random(self, done: int, low: int, step: int) -> Batch:
        """The keys of a step's random numbers, for the part that begins at ``low``.

        ``step``: the first of those taken now, of any row that sees its own examples.
        """
        if not self.draws:
            return ()
        keys = [
            key_of(trial.seed, step + done)
            for step, trial in zip(self._steps, self._rows, strict=True)
        ]
        start = (self.context.part(step).start or 0) + low
        device = self.context.device
        return torch.tensor(keys, device=device), torch.tensor(start, device=device)

    def _drawn(self, sources: Sequence[int]) -> DrawnRows:
        """The rows whose examples each row sees next."""
        return DrawnRows(
            orders=[self._orders[row] for row in sources],
            trials=[self._rows[row] for row in sources],
            steps=[self._steps[row] for row in sources],
            active=len(self.trials),
        )

    @torch.no_grad()
    def evaluate(
        self,
        split: str,
        rows: Sequence[int] | None = None,
        parts: SplitParts | None = None,
        tests: Sequence[MissTest] = (),
    ) -> list[dict[str, float]]:
        data, layout = self.context.splits[split], self.context.layout
        evaluated_rows = range(len(self.trials)) if rows is None else rows
        width, views = width_of(len(evaluated_rows)), None
        if width < self.stack.width:  # a few of them: a narrow stack costs as much less
            picked = [*evaluated_rows, *[evaluated_rows[-1]] * (width - len(evaluated_rows))]
            where = torch.tensor(picked, device=self.context.device)
            views = self.techniques.evaluated(where, self.update.evaluated(where))
        else:
            where = torch.arange(width, device=self.context.device)
            weights = self.update.evaluated(where)
            if weights is not None or self.context.techniques.define("evaluated"):
                views = self.techniques.evaluated(where, weights)
        models = self.stack.width if views is None else width
        workload, device = self.context.workload, self.context.device
        sums = MetricSums(models, device, workload, len(data), watched(split, tests))
        places = evaluated_rows if views is None else range(len(evaluated_rows))

        def metrics_of(batch: Batch) -> tuple[Mapping[str, Any], None]:
            return self.stepper.metrics(batch, views), None

        # A graph is traced for each length of a chunk.
        chunk = min(self.chunk, FIRST) if parts else self.chunk
        with self.context.precision.products():
            return measure(sums, data, layout, chunk, metrics_of, places, parts, tests)

    @torch.no_grad()
    def finite(self) -> list[bool]:
        # NaN passes through both; a tenth of the time of asking each number.
        broken = ~self.stack.weights.abs().amax(dim=1).isfinite()
        # What is not finite on one rank is not finite in the sum: all ranks decide alike.
        losses = self.context.layout.all_reduce(self.loss_sum.masked_fill(broken, torch.nan))
        flags: list[bool] = losses.isfinite()[: len(self.trials)].tolist()
        return flags

    def keep(self, rows: Sequence[int]) -> None:
        rows = list(rows)
        self.trials = [self.trials[i] for i in rows]
        if rows:
            self._pick(rows, self.stack.width)

    @torch.no_grad()
    def add(self, trials: Sequence[Trial]) -> None:
        active, before = len(self.trials), self.stack.width
        fresh = Stack.of([self.context.model(trial) for trial in trials], len(trials))
        update = make_update(self.context, trials, fresh)
        self.stack.add(fresh)
        self.update.add(update)
        techniques = [self.context.techniques_of(trial) for trial in trials]
        self.techniques.add(StackedTechniques(techniques, fresh))
        self.loss_sum = torch.cat([self.loss_sum, self.loss_sum.new_zeros(len(trials))])
        self.trials += trials
        self._rows += trials
        self._orders += [self.context.order(trial) for trial in trials]
        self._steps += [0] * len(trials)
        self._pick([*range(active), *range(before, before + len(trials))], before)

    def _pick(self, rows: list[int], before: int) -> None:
        """Put ``rows`` first, and fill up to a width of the ladder; ``before``: the present one."""
        width = width_of(len(rows))
        picked = list(rows)
        if width == before:
            # No narrower width fits: stopped rows stay behind the others, their results unread.
            others = [i for i in range(before) if i not in set(rows)]
            picked += others[: width - len(rows)]
        picked += [rows[-1]] * (width - len(picked))
        where = torch.tensor(picked, device=self.context.device)
        self.stack.keep(where)
        self.update.keep(where)
        self.techniques.keep(where)
        self.loss_sum = self.loss_sum[where]
        self._rows = [self._rows[i] for i in picked]
        self._orders = [self._orders[i] for i in picked]
        self._steps = [self._steps[i] for i in picked]
        self._batches.ahead = 1

    @torch.no_grad()
    def copy(self, rows: Sequence[int]) -> list[Any]:
        where = torch.tensor(list(rows), device=self.context.device)
        parts = zip(
            rows,
            self.stack.weights[where].unbind(),
            self.loss_sum[where].unbind(),
            self.update.copy(where),
            strict=True,
        )
        return [
            {
                "step": self._steps[row],
                "weights": weights,
                "loss": loss,
                "update": update,
                "techniques": self.techniques.copy(row),
                "order": self._orders[row].state(),
            }
            for row, weights, loss, update in parts
        ]

    @torch.no_grad()
    def restore(self, row: int, state: Any) -> None:
        self._steps[row] = state["step"]
        # Rows that repeat this one stay where they are, and must not share its order.
        self._orders[row] = self.context.order(self._rows[row])
        self._orders[row].load(state.get("order"), state["step"])
        self.stack.weights[row].copy_(state["weights"])
        self.loss_sum[row].copy_(state["loss"])
        self.update.restore(row, state["update"])
        self.techniques.restore(row, state.get("techniques", {}))

    def weights(self, row: int) -> dict[str, Tensor]:
        return self._state_dict({name: view[row] for name, view in self.stack.views.items()})

    @torch.no_grad()
    def measured(self, row: int) -> dict[str, Tensor]:
        where = torch.tensor([row], device=self.context.device)
        views = self.techniques.evaluated(where, self.update.evaluated(where))
        trained = {name: view[row] for name, view in self.stack.views.items()}
        return self._state_dict({**trained, **{name: view[0] for name, view in views.items()}})

    def _state_dict(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One model's state as the module itself has it: with its buffers, and tied parameters
        under each of their names."""
        first = {id(p): name for name, p in self.base.named_parameters()}
        every = self.base.named_parameters(remove_duplicate=False)
        named = {name: parameters[first[id(p)]] for name, p in every}
        return {
            name: named.get(name, value).clone() for name, value in self.base.state_dict().items()
        }

    def state(self) -> dict[str, Any]:
        values = {
            "steps": self._steps,
            "weights": self.stack.weights,
            "update": self.update.state(),
            "loss": self.loss_sum,
            "techniques": self.techniques.state,
            "orders": [order.state() for order in self._orders[: len(self.trials)]],
        }
        copied: dict[str, Any] = gather(values, torch.device("cpu"))
        return copied

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        self._steps = list(state["steps"])
        saved = state.get("orders", [None] * len(self.trials))
        for order, of_order, step in zip(self._orders, saved, self._steps, strict=False):
            order.load(of_order, step)
        self.stack.weights.copy_(state["weights"])
        self.update.load(state["update"])
        self.techniques.load(state.get("techniques", {}))
        self.loss_sum.copy_(state["loss"])
