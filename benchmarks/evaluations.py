"""What part of a trial evaluations take, and that steps to target are those of full evaluations.

One trial with a good learning rate is trained to its target twice within one run, on one thread:
once with evaluations that end when a miss is certain, once with full ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.harness import Model, Row, trials
from experiments.plan import Measurement, Outcome, Pack
from experiments.training.pack_training import Training
from experiments.training.threads import single_thread
from results.targets.target import Target


@dataclass(frozen=True, kw_only=True)
class Reaching(Model):
    """A trial that reaches its target."""

    target: str
    learning_rate: float
    budget_steps: int
    wanted: str = ""


TEXT: dict[str, Any] = {
    "workload": "lm-transformer", "batch_size": 4, "optimizer": "adamw",
    "target": "validation_cross_entropy < 2.4", "learning_rate": 3e-3, "budget_steps": 2000,
}  # fmt: skip
LANGUAGE = {"text": "stdlib", "context": 64}
IMAGES: dict[str, Any] = {"optimizer": "momentum", "wanted": "≤ 15 %"}
RESNET = {**IMAGES, "workload": "cifar10-resnet8", "target": "validation_error < 0.4"}
CASES = (
    # Larger batches of images take hours here: a sweep's own rows have their share.
    Reaching(**RESNET, batch_size=64, learning_rate=0.02, budget_steps=6000),
    Reaching(
        **IMAGES, workload="mnist-simple-cnn", batch_size=64, target="validation_error < 0.03",
        learning_rate=0.03, budget_steps=1500,
    ),
    Reaching(**TEXT, fields={**LANGUAGE, "validation_tokens": 8192}, wanted="≤ 30 %"),
    Reaching(**TEXT, fields={**LANGUAGE, "validation_tokens": 2**17}),
)  # fmt: skip


def trained(case: Reaching, evaluate: Literal["auto", "full"]) -> tuple[Outcome, list[Measurement]]:
    """How a case ended, and its evaluations."""
    of = case.study(
        budget_steps=case.budget_steps, targets=(Target.parse(case.target),), evaluate=evaluate
    )
    pack = Pack(id="pack", study=of, trials=trials(1, case.learning_rate), engine="module")
    events = [event for each in Training(pack).run() for event in each]
    (end,) = (event for event in events if isinstance(event, Outcome))
    return end, [event for event in events if isinstance(event, Measurement)]


def share(end: Outcome) -> float:
    """The part of a trial's seconds that its evaluations took."""
    return end.evaluation_seconds / (end.evaluation_seconds + end.train_seconds)


def row(case: Reaching) -> Row:
    """One case in the table."""
    (early, evaluations), (full, _) = trained(case, "auto"), trained(case, "full")
    same = (early.steps_to_target, early.last_miss) == (full.steps_to_target, full.last_miss)
    whole = sum(m.evaluated_examples is None for m in evaluations)
    tokens = case.fields.get("validation_tokens")
    what = f"{case.workload}, batch {case.batch_size:,}, {case.target}"
    return Row(
        what + (f", {tokens:,} tokens" if tokens else "") + ": evaluations' share",
        f"{share(early):.0%}, with full ones {share(full):.0%}; {whole} of "
        f"{len(evaluations)} read the whole split; "
        + (f"both reach it at step {early.steps_to_target}" if same else "DIFFERENT STEPS"),
        case.wanted,
    )


def rows() -> list[Row]:
    """The table."""
    with single_thread():
        return [row(case) for case in CASES]
