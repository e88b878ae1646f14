"""The module engine: each model by itself, with autograd and torch's or a library's optimizer.

The plain way, and the twin of every faster one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.base import Engine, gather
from experiments.engines.metric_sums import MetricSums, chunks
from experiments.engines.randomness import ExampleRandomness, RandomDraws, key_of
from experiments.optimizers.groups import Rates, parameter_options
from experiments.plan import Trial
from experiments.techniques import Techniques
from experiments.techniques.base import State
from experiments.training.batch_order import BatchOrder
from experiments.training.micro_batch import chunk_size, micro_batch
from experiments.training.study_context import StudyContext
from workloads import Batch, Workload
from workloads.checks import check_metrics, check_per_example
from workloads.ghost import finish_step, has_batch_norm


@dataclass(kw_only=True)
class _Run:
    """One trial in training."""

    workload: Workload
    model: nn.Module
    optimizer: torch.optim.Optimizer
    order: BatchOrder
    loss_sum: Tensor
    """Running sum of all losses, float64: it never becomes finite again."""
    rates: Rates
    draws: RandomDraws
    """What a forward pass of its model draws."""
    techniques: Techniques
    technique_state: State
    step: int = 0


class ModuleEngine(Engine):
    """One model at a time: each trial is trained in turn, from its own step."""

    kind = "module"

    def __init__(self, setup: StudyContext, trials: Sequence[Trial]) -> None:
        super().__init__(setup, trials)
        first = setup.model(trials[0])
        self.micro = micro_batch(setup, first, models=1)
        self.chunk = chunk_size(setup, first, models=1)
        self.normed = has_batch_norm(first)
        self._shares: dict[tuple[int, torch.dtype], Tensor] = {}
        self._draws: dict[str, RandomDraws] = {}
        self._places: dict[Any, Tensor] = {}
        self.runs = [self._start(trial) for trial in trials]

    def _start(self, trial: Trial) -> _Run:
        setup = self.setup
        model = setup.layout.wrap(setup.model(trial)).train()
        values = setup.optimizer.arguments_in(trial.metaparameters)
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        workload = setup.workload_of(trial)
        options = parameter_options(setup.optimizer, workload, dict(trained))
        optimizer = setup.optimizer.module(trained, values, options)
        techniques = setup.techniques_of(trial)
        return _Run(
            workload=workload,
            draws=self._draws_of(trial, model),
            model=model,
            optimizer=optimizer,
            order=BatchOrder(trial.seed, len(setup.train), setup.study.batch_size),
            loss_sum=torch.zeros((), dtype=torch.float64, device=setup.device),
            rates=Rates(optimizer, setup.optimizer.name),
            techniques=techniques,
            technique_state=techniques.start({name: p.detach() for name, p in trained}),
        )

    def _draws_of(self, trial: Trial, model: nn.Module) -> RandomDraws:
        """Asked once for each setting of tuned fields: one of them may be a rate of dropout.

        Raises:
            WorkloadError: the numbers depend on how a batch is divided, and it is.
        """
        setup = self.setup
        techniques = setup.techniques_of(trial)
        key = json.dumps([setup.tuned_fields(trial), techniques.tuned], sort_keys=True)
        if key not in self._draws:
            draws = RandomDraws.of(setup, model, setup.workload_of(trial), techniques)
            if setup.layout.data_ranks > 1 or setup.study.batch_size > self.micro:
                draws.refuse_parts(setup)
            self._draws[key] = draws
        return self._draws[key]

    @property
    def steps(self) -> list[int]:
        return [run.step for run in self.runs]

    def advance(self, steps: int) -> None:
        with torch.random.fork_rng(enabled=any(run.draws.unsupported for run in self.runs)):
            for trial, run in zip(self.trials, self.runs, strict=True):
                self._train(trial, run, steps)
                run.step += steps

    def _train(self, trial: Trial, run: _Run, steps: int) -> None:
        schedule, meta = self.setup.schedule, trial.metaparameters
        constant, factor = schedule.is_constant(meta), schedule.factor_of(meta)
        todo, part = range(run.step, run.step + steps), self.setup.part
        for step, batch in self.setup.train.batches(run.order, todo, part, trial.seed):
            if not constant:
                run.rates.scale(factor(step))
            self._gradient(trial, run, batch, step)
            if run.techniques.define("gradient"):
                self._change_gradient(run, step)
            run.optimizer.step()
            if run.techniques.define("after_step"):
                self._change_weights(run, step)
            if self.normed:
                finish_step(run.model, self.setup.layout.all_reduce)

    def _gradient(self, trial: Trial, run: _Run, batch: Batch, step: int) -> None:
        """The gradient of the mean loss over the global batch, in ``.grad``."""
        run.optimizer.zero_grad()
        size = self.setup.study.batch_size
        mine = len(batch[0])
        for low in range(0, mine, self.micro):
            part = batch
            if mine > self.micro:
                part = tuple(x[low : low + self.micro] for x in batch)
            with self._randomness(trial, run, step, low, len(part[0])), self.setup.autocast():
                loss = run.techniques.loss(run.workload, run.model, part)
            if loss.dim() != 1 or len(loss) != len(part[0]):
                check_per_example(loss, len(part[0]), "loss", run.workload)
            # The gradient of sum(loss) / size, without two more nodes in the graph.
            loss.backward(self._weights(len(loss), size, loss.dtype))
            run.loss_sum.add_(loss.detach().sum())
        if self.setup.layout.ranks.size > 1:
            trained = [p for p in run.model.parameters() if p.requires_grad]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            self.setup.layout.reduce_gradients([p.grad for p in trained if p.grad is not None])

    @torch.no_grad()
    def _change_gradient(self, run: _Run, step: int) -> None:
        """What techniques make of the gradient of the global batch."""
        parameters = {n: p for n, p in run.model.named_parameters() if p.grad is not None}
        gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        weights = {name: p.detach() for name, p in parameters.items()}
        made = torch.tensor(step, device=self.setup.device)
        changed = run.techniques.gradient(gradients, weights, run.technique_state, made)
        for name, gradient in changed.items():
            parameters[name].grad = gradient

    @torch.no_grad()
    def _change_weights(self, run: _Run, step: int) -> None:
        """What techniques make of the weights after the update that followed ``step`` others."""
        weights = _trained_weights(run.model)
        made = torch.tensor(step, device=self.setup.device)
        for name, value in run.techniques.after_step(weights, run.technique_state, made).items():
            if value is not weights[name]:
                weights[name].copy_(value)

    def _randomness(
        self, trial: Trial, run: _Run, step: int, low: int, examples: int
    ) -> contextlib.AbstractContextManager[Any]:
        """The random numbers of one forward pass, of the part that begins at ``low``."""
        if not run.draws:
            return contextlib.nullcontext()
        key = key_of(trial.seed, step)
        if run.draws.unsupported:  # then there is one part
            torch.manual_seed(key)
            return contextlib.nullcontext()
        return ExampleRandomness(
            run.draws,
            torch.tensor(key, device=self.setup.device),
            examples,
            (self.setup.part.start or 0) + low,
            places=self._places,
        )

    def _weights(self, examples: int, size: int, dtype: torch.dtype) -> Tensor:
        """What each example's loss counts in the mean over the global batch, ``(examples,)``."""
        key = (examples, dtype)
        if key not in self._shares:
            shape = (examples,)
            self._shares[key] = torch.full(shape, 1 / size, dtype=dtype, device=self.setup.device)
        return self._shares[key]

    @torch.no_grad()
    def evaluate(self, split: str, rows: Sequence[int] | None = None) -> list[dict[str, float]]:
        data, layout = self.setup.splits[split], self.setup.layout
        means: list[dict[str, float]] = []
        for run in self.runs if rows is None else [self.runs[i] for i in rows]:
            trained = self._set_evaluated(run)
            run.model.eval()
            sums = MetricSums(1, self.setup.device)
            for indices in chunks(layout.share(len(data)), self.chunk):
                batch = data.fetch(indices, training=False)
                with self.setup.autocast():
                    metrics = run.workload.metrics(run.workload.forward(run.model, batch), batch)
                check_metrics(metrics, len(indices), run.workload)
                sums.add(metrics, len(indices))
            run.model.train()
            for name, weight in trained.items():
                run.model.get_parameter(name).data = weight
            means += sums.means(layout.all_reduce)
        return means

    def _set_evaluated(self, run: _Run) -> dict[str, Tensor]:
        """Let the model have the weights that are measured; the trained ones, where others are."""
        if not run.techniques.define("evaluated"):
            return {}
        trained = _trained_weights(run.model)
        for name, weight in run.techniques.evaluated(trained, run.technique_state).items():
            run.model.get_parameter(name).data = weight
        return trained

    @torch.no_grad()
    def finite(self) -> list[bool]:
        layout = self.setup.layout
        losses = layout.all_reduce(torch.stack([run.loss_sum for run in self.runs])).isfinite()
        weights = [all(bool(p.isfinite().all()) for p in r.model.parameters()) for r in self.runs]
        flags: list[bool] = layout.all_true(losses & losses.new_tensor(weights)).tolist()
        return flags

    def keep(self, rows: Sequence[int]) -> None:
        self.trials = [self.trials[i] for i in rows]
        self.runs = [self.runs[i] for i in rows]

    def add(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        self.runs += [self._start(trial) for trial in trials]

    def copy(self, rows: Sequence[int]) -> list[Any]:
        states: list[Any] = [
            {
                "step": run.step,
                **self.setup.layout.state(run.model, run.optimizer),
                "loss": run.loss_sum,
                "techniques": run.technique_state,
            }
            for run in (self.runs[i] for i in rows)
        ]
        return gather(states)

    def restore(self, row: int, state: Any) -> None:
        run = self.runs[row]
        run.step = state["step"]
        # An optimizer keeps what it is given and changes it in place.
        self.setup.layout.load(
            run.model, run.optimizer, {**state, "optimizer": gather(state["optimizer"])}
        )
        run.loss_sum.copy_(state["loss"])
        run.technique_state = gather(state.get("techniques", {}), self.setup.device)

    def weights(self, row: int) -> dict[str, Tensor]:
        run = self.runs[row]
        state = self.setup.layout.state(run.model, run.optimizer)["model"]
        return {k: v.detach().clone() for k, v in state.items()}

    def state(self) -> dict[str, Any]:
        rows = range(len(self.runs))
        return {"runs": gather(self.copy(rows), torch.device("cpu"))}

    def load(self, state: dict[str, Any]) -> None:
        for row, of_run in enumerate(state["runs"]):
            self.restore(row, of_run)


def _trained_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
