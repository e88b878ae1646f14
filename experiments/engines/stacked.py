"""The stacked engine: many models of one shape at once, by ``torch.func``.

All weights lie in one tensor ``(models, size)``; a parameter is a view of it, ``(models, *shape)``.
Each parameter starts at a multiple of 64 bytes in every row, so that matrix kernels, which choose
their path by alignment, treat every model alike: on a CPU a trial's bits do not depend on the
pack it is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from experiments.engines.base import Engine, gather
from experiments.engines.batches import Batches, Row
from experiments.engines.capture.stacked_program import advance_captured
from experiments.engines.metric_sums import MetricSums, measure, watched
from experiments.engines.randomness import RandomDraws, key_of
from experiments.engines.stack import Stack, StackedStep, copy_into, width_of
from experiments.engines.step import Hooks, Models
from experiments.engines.updates import Update, learning_rates, make_update
from experiments.plan import Trial
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import FIRST, Parts
from experiments.training.micro_batch import chunk_size, micro_batch
from experiments.training.study_context import StudyContext
from workloads import Batch

MODELS = 64
"""Number of models for which a micro-batch's memory is bounded, in every pack."""


class StackedEngine(Engine, Models):
    """Rows of the stack: the active trials first, then those stopped and not yet squeezed out.

    The stack is squeezed only when a narrower width of a fixed ladder suffices, so that one
    traced step serves many packs.
    """

    kind = "stacked"
    stacked = True

    def __init__(self, context: StudyContext, trials: Sequence[Trial]) -> None:
        super().__init__(context, trials)
        models = [context.model(trial) for trial in trials]
        self.base = models[0].train()
        self.stack = Stack.of(models, width_of(len(trials)))
        self.draws = RandomDraws.of(context, self.base)
        self.micro = micro_batch(context, self.base, MODELS)
        self.stepper = StackedStep(context, self.base, self.stack, self.draws, self.micro)
        self.chunk = chunk_size(context, self.base, MODELS)
        rows = [Row(trial=trial, order=context.order(trial)) for trial in trials]
        # Rows up to the stack's width are the last trial again, their results unread.
        self.rows = [*rows, *rows[-1:] * (self.stack.width - len(rows))]
        self._batches = Batches(context, stacked=True)
        of_rows = [row.trial for row in self.rows]
        self.update: Update = make_update(context, of_rows, self.stack)
        self.hooks = Hooks(self, of_rows, self.trained())

    @property
    def steps(self) -> list[int]:
        return [row.step for row in self.rows[: len(self.trials)]]

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        ramp = self.context.study.ramp
        with self.context.precision.products():
            while steps and ramp is not None:
                changes = [at for step in self.steps if (at := ramp.steps_to_change(step))]
                taken = min([steps, *changes])
                self._advance_each_size(taken, [ramp.size(step) for step in self.steps])
                steps -= taken
            if steps:
                self._advance(steps, self.rows[: len(self.trials)])

    def _advance_each_size(self, steps: int, sizes: Sequence[int]) -> None:
        """Train each trial for steps of its batch size, ``sizes``.

        Where trials at different steps have different ones, the whole stack is trained once for
        each size; then the rows of other sizes, which have seen examples of one of this size, are
        set back.
        """
        for size in dict.fromkeys(sizes):
            before, first = list(self.rows), self.rows[sizes.index(size)]
            others = [row for row, of_row in enumerate(sizes) if of_row != size]
            saved = self.copy(others) if others else []
            seen = [first if row in others else self.rows[row] for row in range(len(sizes))]
            self._advance(steps, seen)
            for row, state in zip(others, saved, strict=True):
                self.restore(row, state)
                self.rows[row] = before[row]

    def _advance(self, steps: int, seen: Sequence[Row]) -> None:
        """Take steps of one batch size; ``seen``: the rows whose examples each active row sees."""
        # The others see those of the last one: after their own last step there may be none.
        seen = [*seen, *[seen[-1]] * (self.stack.width - len(seen))]
        if not advance_captured(self.stepper, self.update, self.rows, seen, steps):
            first = seen[0].step  # tells the batch size
            self.size, self.share = self.context.study.batches.size(first), self.context.part(first)
            self._rates_at = learning_rates(self.context, [row.trial for row in self.rows])
            for done, batch in self._batches.take(seen, len(self.trials), steps):
                self.take([row.step + done for row in self.rows], batch)
        self.rows = [replace(row, step=row.step + steps) for row in self.rows]

    # What a step is made of.

    def begin(self, steps: Sequence[int]) -> Tensor:
        self._rates = self._rates_at(steps).to(self.context.device)
        self._keys: Tensor | None = None
        if self.draws:
            seeds = (row.trial.seed for row in self.rows)
            keys = [key_of(seed, step) for seed, step in zip(seeds, steps, strict=True)]
            self._keys = torch.tensor(keys, device=self.context.device)
        return self._rates

    def take_gradient(self, batch: Batch, examples: Tensor | None) -> None:
        self.stepper.take_gradient(batch, self.size, self._keys, self.share.start, examples)
        self.context.layout.reduce_gradients([self.stack.gradient])

    def loss_sums(self) -> Tensor:
        return self.stack.losses

    def losses(self, batch: Batch) -> Tensor:
        losses = self.stack.weights.new_zeros(self.stack.width, self.size)
        losses[:, self.share] = self.stepper.losses(batch, self._keys, self.share.start)
        return self.context.layout.all_reduce(losses)

    def update_weights(self) -> None:
        self.update.step(self._rates)

    def trained(self) -> dict[str, Tensor]:
        return {name: self.stack.views[name] for name in self.stack.trainable}

    def gradients(self) -> dict[str, Tensor]:
        return {name: self.stack.gradient_views[name] for name in self.stack.trainable}

    def set_trained(self, weights: Mapping[str, Tensor]) -> None:
        copy_into(self.stack.views, weights)

    def set_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        copy_into(self.stack.gradient_views, gradients)

    # Evaluations and states.

    @torch.no_grad()
    def evaluate(
        self,
        split: str,
        rows: Sequence[int] | None = None,
        parts: Parts | None = None,
        tests: Sequence[MissTest] = (),
    ) -> list[dict[str, float]]:
        data, layout = self.context.splits[split], self.context.layout
        evaluated_rows = range(len(self.trials)) if rows is None else rows
        width, places, views = width_of(len(evaluated_rows)), evaluated_rows, None
        if width < self.stack.width:  # a few of them: a narrow stack costs as much less
            places = range(len(evaluated_rows))
            picked = [*evaluated_rows, *[evaluated_rows[-1]] * (width - len(evaluated_rows))]
            where = torch.tensor(picked, device=self.context.device)
            views = self._measured(where, self.update.evaluated(where))
        else:
            where = torch.arange(width, device=self.context.device)
            weights = self.update.evaluated(where)
            if weights is not None or self.context.techniques.define("evaluated"):
                views = self._measured(where, weights)
        models = self.stack.width if views is None else width
        workload, device = self.context.workload, self.context.device
        sums = MetricSums(models, device, workload, len(data), watched(split, tests))

        def metrics_of(batch: Batch) -> tuple[Mapping[str, Any], None]:
            return self.stepper.metrics(batch, views), None

        # A graph is traced for each length of a chunk.
        chunk = min(self.chunk, FIRST) if parts else self.chunk
        with self.context.precision.products():
            return measure(sums, data, layout, chunk, metrics_of, places, parts, tests)

    def _measured(self, rows: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        """The parameters of ``rows`` that are measured, laid out as those of the stack.

        ``weights``: the optimizer's, ``(rows, size)``, where it has others than the trained ones.
        """
        views = self.stack.views_of(self.stack.weights[rows] if weights is None else weights)
        if self.context.techniques.define("evaluated"):
            trained = {name: views[name] for name in self.stack.trainable}
            copy_into(trained, self.hooks.evaluated(trained, rows))
        return views

    def recorded(self, rows: Sequence[int]) -> list[dict[str, float]]:
        columns = {name: value.tolist() for name, value in self.hooks.recorded().items()}
        return [{name: values[i] for name, values in columns.items()} for i in rows]

    @torch.no_grad()
    def finite(self) -> list[bool]:
        # NaN passes through both; a tenth of the time of asking each number.
        broken = ~self.stack.weights.abs().amax(dim=1).isfinite()
        # What is not finite on one rank is not finite in the sum: all ranks decide alike.
        losses = self.context.layout.all_reduce(self.stack.losses.masked_fill(broken, torch.nan))
        flags: list[bool] = losses.isfinite()[: len(self.trials)].tolist()
        return flags

    def keep(self, rows: Sequence[int]) -> None:
        self.trials = [self.trials[i] for i in rows]
        if rows:
            self._pick(list(rows), self.stack.width)

    @torch.no_grad()
    def add(self, trials: Sequence[Trial]) -> None:
        active, before = len(self.trials), self.stack.width
        fresh = Stack.of([self.context.model(trial) for trial in trials], len(trials))
        update = make_update(self.context, trials, fresh)
        self.stack.add(fresh)
        self.update.add(update)
        begun = {name: fresh.views[name] for name in fresh.trainable}
        self.hooks.add(Hooks(self, trials, begun))
        self.trials += trials
        self.rows += [Row(trial=trial, order=self.context.order(trial)) for trial in trials]
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
        self.hooks.keep(where)
        self.rows = [self.rows[i] for i in picked]
        self._batches.ahead = 1

    @torch.no_grad()
    def copy(self, rows: Sequence[int]) -> list[Any]:
        # What is not finite on one rank is not finite in the sum.
        losses = self.context.layout.all_reduce(self.stack.losses.clone())
        states = (
            {
                "step": self.rows[row].step,
                "weights": self.stack.weights[row],
                "loss": losses[row],
                "update": self.update.of_row(row),
                "techniques": self.hooks.of_row(row),
                "order": self.rows[row].order.state(),
            }
            for row in rows
        )
        return [gather(state) for state in states]

    @torch.no_grad()
    def restore(self, row: int, state: Any) -> None:
        # Rows that repeat this one stay where they are, and must not share its order.
        order = self.context.order(self.rows[row].trial)
        order.load(state["order"], state["step"])
        self.rows[row] = replace(self.rows[row], order=order, step=state["step"])
        self.stack.weights[row].copy_(state["weights"])
        self.stack.losses[row].copy_(state["loss"] / self.context.layout.data_ranks)
        self.update.restore(row, state["update"])
        self.hooks.restore(row, state["techniques"])

    def weights(self, row: int) -> dict[str, Tensor]:
        return self._state_dict({name: view[row] for name, view in self.stack.views.items()})

    @torch.no_grad()
    def measured(self, row: int) -> dict[str, Tensor]:
        where = torch.tensor([row], device=self.context.device)
        views = self._measured(where, self.update.evaluated(where))
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
