"""The stacked engine: many models of one shape at once, by ``torch.func``.

All weights lie in one tensor ``(models, size)``; a parameter is a view of it, ``(models, *shape)``.
Each parameter starts on a 64-byte border in every row, so that matrix kernels, which choose
their path by alignment, treat every model alike: on a CPU a trial's bits do not depend on the
pack it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.engines.base import Engine, gather
from experiments.engines.step import Stack, StackedStep, width_of
from experiments.engines.sums import Sums, chunks
from experiments.engines.updates import Update, make_update
from experiments.plan import Trial
from experiments.training.order import Order
from experiments.training.setup import Setup
from workloads import Batch

_PREFETCH_BYTES = 2**22
_MODELS = 64
"""Models that the bound on a micro-batch's memory is reckoned for, whatever the pack."""


class StackedEngine(Engine):
    """Rows of the stack: the active trials first, then those stopped and not yet squeezed out.

    The stack is squeezed only when a narrower width of a fixed ladder suffices, so that one
    traced step serves many packs.
    """

    kind = "stacked"

    def __init__(self, setup: Setup, trials: Sequence[Trial]) -> None:
        super().__init__(setup, trials)
        models = [setup.model(trial) for trial in trials]
        self.base = models[0].train()
        self.stack = Stack.of(models, width_of(len(trials)))
        self.stepper = StackedStep(setup, self.base, self.stack)
        self.micro = setup.micro_batch(self.base, _MODELS)
        self.chunk = setup.chunk(self.base, _MODELS)
        self._rows = self._padded(list(trials))
        self._orders = self._make_orders()
        self.update: Update = make_update(setup.optimizer, self._rows, self.stack)
        self.loss_sum = torch.zeros(self.stack.width, dtype=torch.float64, device=setup.device)

    def _padded(self, rows: list[Trial]) -> list[Trial]:
        """Rows up to the stack's width: the last trial again, its results unread."""
        return rows + [rows[-1]] * (self.stack.width - len(rows))

    def _make_orders(self) -> list[Order]:
        size = self.setup.study.batch_size
        orders = {t.id: Order(t.seed, len(self.setup.train), size) for t in self._rows}
        return [orders[t.id] for t in self._rows]

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        setup, width = self.setup, self.stack.width
        schedule = setup.schedule
        constant = all(schedule.is_constant(t.metaparameters) for t in self._rows)
        rates = self._rates()
        for step, batch in self._batches(steps):
            mine = batch[0].shape[1]
            self.stack.gradient.zero_()
            for low in range(0, mine, self.micro):
                part = batch
                if mine > self.micro:
                    part = tuple(x[:, low : low + self.micro] for x in batch)
                self.loss_sum.add_(self.stepper.add_gradient(part))
            setup.group.all_reduce_(self.stack.gradient)
            if not constant:
                factors = [schedule.factor(step, t.metaparameters) for t in self._rows]
                scale = torch.tensor(factors, dtype=torch.float64, device=setup.device)
                self.update.step(rates * scale.view(width, 1))
            else:
                self.update.step(rates)
        self.step += steps

    def _rates(self) -> Tensor:
        rates = [[float(t.metaparameters["learning_rate"])] for t in self._rows]
        return torch.tensor(rates, dtype=torch.float64, device=self.setup.device)

    def _batches(self, steps: int) -> Iterator[tuple[int, Batch]]:
        """This rank's batches of the next steps, ``(models, share, …)``."""
        split, part, width = self.setup.train, self.setup.part, self.stack.width
        size = part.stop - part.start
        if split.random:
            for step in range(self.step, self.step + steps):
                drawn = [
                    split.fetch_random(order.batches(step, 1)[0], part, trial.seed, step)
                    for order, trial in zip(self._orders, self._rows, strict=True)
                ]
                yield step, tuple(torch.stack(x) for x in zip(*drawn, strict=True))
            return
        step, end = self.step, self.step + steps
        ahead = 1
        while step < end:
            count = min(ahead, end - step)
            drawn_indices = [order.batches(step, count)[:, part] for order in self._orders]
            indices = torch.stack(drawn_indices, dim=1)  # (steps, models, share)
            batch = split.fetch(indices.reshape(-1), training=True)
            # Many small batches are fetched at once: a gather costs as much as a small step.
            held = sum(x.numel() * x.element_size() for x in batch) // count
            ahead = max(1, min(256, _PREFETCH_BYTES // max(held, 1)))
            for i, of_step in enumerate(
                zip(*(x.view(count, width, size, *x.shape[1:]) for x in batch), strict=True)
            ):
                yield step + i, of_step
            step += count

    @torch.no_grad()
    def evaluate(self, split: str) -> list[dict[str, float]]:
        data, group = self.setup.splits[split], self.setup.group
        sums = Sums(self.stack.width, self.setup.device)
        for indices in chunks(len(data), self.chunk, group):
            batch = data.fetch(indices, training=False)
            sums.add(self.stepper.metrics(batch), len(indices))
        return sums.means(group)[: len(self.trials)]

    @torch.no_grad()
    def finite(self) -> list[bool]:
        losses = self.setup.group.all_reduce_(self.loss_sum.clone()).isfinite()
        ok = losses & self.stack.weights.isfinite().all(dim=1)
        found: list[bool] = ok[: len(self.trials)].tolist()
        return found

    def keep(self, rows: Sequence[int]) -> None:
        rows = list(rows)
        self.trials = [self.trials[i] for i in rows]
        if not rows:
            return
        width = width_of(len(rows))
        picked = rows + [rows[-1]] * (width - len(rows))
        if width == self.stack.width:
            # No narrower width fits: stopped rows stay behind the others, their results unread.
            others = [i for i in range(width) if i not in set(rows)]
            picked = rows + others[: width - len(rows)]
        where = torch.tensor(picked, device=self.setup.device)
        self.stack.keep(where)
        self.loss_sum = self.loss_sum[where]
        self._rows = [self._rows[i] for i in picked]
        self._orders = [self._orders[i] for i in picked]
        self.update.keep(where)

    def weights(self, row: int) -> dict[str, Tensor]:
        named = {name: view[row].clone() for name, view in self.stack.views.items()}
        return {**{k: v.clone() for k, v in self.base.named_buffers()}, **named}

    def state(self) -> dict[str, Any]:
        held = {
            "step": self.step,
            "weights": self.stack.weights,
            "update": self.update.state(),
            "loss": self.loss_sum,
            "rows": [t.id for t in self._rows],
        }
        copied: dict[str, Any] = gather(held, torch.device("cpu"))
        return copied

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.stack.weights.copy_(state["weights"])
        self.update.load(state["update"])
        self.loss_sum.copy_(state["loss"])
