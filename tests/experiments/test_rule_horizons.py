"""Rules that give a half-life or a time scale: what the metaparameters are at each batch size."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compile import Experiment, parse
from experiments.factors.horizon import Horizon
from experiments.factors.rule import Rule
from tests.experiments.files import own

BETA2 = "{beta2: {half_life: 2000 examples}}"
WORKLOAD = """\
import torch
from batchscale import Workload

class Words(Workload):
    target = "validation_loss < 0.1"
    example_unit = "sequence"
    context: int = 8

    @property
    def tokens_per_example(self):
        return self.context

    def data(self):
        x = torch.zeros(512, self.context)
        return {"train": (x,), "validation": (x[:5],)}

    def model(self):
        return torch.nn.Linear(self.context, 1)

    def loss(self, output, batch):
        return output.square().mean(1)

    def metrics(self, output, batch):
        return {"loss": self.loss(output, batch)}
"""
TEXT = """\
workload: {workload}
grid:
  batch_size: {sizes}
  optimizer: {optimizer}
  rule: {rule}
search: {search}
budget: 200 steps
trials: 4
{more}
"""


@pytest.fixture
def read(tmp_path: Path):
    (tmp_path / "words.py").write_text(WORKLOAD)

    def experiment(rule: str, **changes: str) -> Experiment:
        parts = {"workload": "words.py:Words", "sizes": "[16, 64, 256]", "optimizer": "adamw"}
        parts |= {"search": "{}", "more": ""}
        return own(tmp_path, TEXT.format(rule=rule, **{**parts, **changes}))

    return experiment


def rule(**given: object) -> Rule:
    parsed = Rule.parse(given)
    assert parsed is not None
    return parsed


@given(
    size=st.integers(1, 2**20), steps=st.floats(0.1, 1e6),
    name=st.sampled_from(["beta1", "beta2", "momentum"]),
)  # fmt: skip
def test_a_half_life_in_examples_is_the_same_at_every_batch_size(
    size: int, steps: float, name: str
) -> None:
    """ln(1/2) / ln(β) steps of B examples each (Marek et al. 2025)."""
    half_life = steps * size
    made = rule(**{name: {"half_life": f"{half_life!r} examples"}})
    for k in (1, 2):
        factor = float(made.applied({name: 0.5}, k * size, {})[name])
        # To nine figures of 1 - β, which is what a number of 16 figures has of one near 1.
        exact = -math.expm1(-math.log(2) * k * size / half_life)
        assert 1 - factor == pytest.approx(exact, rel=1e-8, abs=1e-15)
        if exact < 0.99:
            measured = k * size * math.log(0.5) / math.log1p(factor - 1)
            assert measured == pytest.approx(half_life, rel=1e-6)


@given(size=st.integers(1, 10**5), tokens=st.integers(1, 4096), half_life=st.floats(1e9, 1e12))
def test_tokens_are_those_of_the_batch(size: int, tokens: int, half_life: float) -> None:
    in_tokens = Horizon(amount=half_life, unit="tokens")
    in_examples = Horizon(amount=half_life / tokens, unit="examples")
    assert in_tokens.decay_factor(size, tokens) == in_examples.decay_factor(size, None)
    assert in_tokens.decay_factor(size, tokens) == pytest.approx(
        0.5 ** (size * tokens / half_life), abs=1e-9
    )


@given(
    size=st.integers(1, 10**5), rate=st.floats(1e-6, 10), times=st.floats(1.01, 1e6),
    kind=st.sampled_from(["none", "sqrt", "linear"]),
)  # fmt: skip
def test_a_time_scale_holds_at_the_learning_rate_of_the_trial(
    size: int, rate: float, times: float, kind: str
) -> None:
    """B / (learning rate · weight decay), also of a rate that a rule gives (Wang & Aitchison)."""
    scale = times * size
    at_tuned_rate = rule(weight_decay={"time_scale": f"{scale!r} examples"})
    both = rule(
        learning_rate=kind, weight_decay={"time_scale": f"{scale!r} examples"}, **{"from": 64}
    )
    for made in (at_tuned_rate, both):
        values = made.applied({"learning_rate": rate, "weight_decay": 7.0}, size, {})
        new_rate, decay = float(values["learning_rate"]), float(values["weight_decay"])
        assert size / (new_rate * decay) == pytest.approx(scale, rel=1e-8)
    default = at_tuned_rate.applied({}, size, {"learning_rate": 1e-3})
    assert default["weight_decay"] == pytest.approx(size / (1e-3 * scale), rel=1e-8)


def test_equal_amounts_are_one_rule() -> None:
    texts = ("1e6 tokens", "1000000 tokens", "1000000.0 token", " 1E+6  tokens")
    assert len({rule(beta2={"half_life": text}) for text in texts}) == 1
    made = rule(
        weight_decay={"time_scale": "2.5e7 tokens"},
        beta2={"half_life": "1e6 tokens"},
        learning_rate="sqrt",
        **{"from": 64},
    )
    assert str(made) == (
        "learning_rate sqrt, beta2 half_life 1000000 tokens, "
        "weight_decay time_scale 25000000 tokens, from 64"
    )
    assert str(rule(beta2={"half_life": "0.5 examples"})) == "beta2 half_life 0.5 examples"


def test_what_a_rule_gives_is_not_tuned_and_needs_no_base(read) -> None:
    """Free tuning beside it is what it is without; the rest is tuned at each batch size."""
    scale = "{beta2: {half_life: 8000 tokens}, weight_decay: {time_scale: 80000 tokens}}"
    file = read(f"[none, {scale}]", sizes="16..256")
    free, by_rule = file.plans()[:5], file.plans()[5:]
    without = read("none", sizes="16..256").plans()
    assert [plan.study for plan in free] == [plan.study for plan in without]
    for plan in by_rule:
        size = plan.study.batch_size
        assert plan.space.keys() == plan.search_space.keys() == {"learning_rate"}
        assert (plan.study.keep, plan.table_of) == (4, None)
        for trial in plan.trials(0, 4):
            values = trial.metaparameters
            assert values["beta2"] == pytest.approx(0.5 ** (size * 8 / 8000), abs=1e-9)
            decay = size * 8 / (80000 * float(values["learning_rate"]))
            assert values["weight_decay"] == pytest.approx(decay, rel=1e-8)
    rates = {t.metaparameters["learning_rate"] for plan in by_rule for t in plan.trials(0, 4)}
    assert len(rates) == 20
    resolved = parse(file.to_yaml(), base=Path(file.base))
    assert [p.study for p in resolved.plans()] == [p.study for p in file.plans()]
    # The same half-life, in sequences of eight tokens: the same metaparameters.
    changes = {"sizes": "16..256", "search": "{weight_decay: 0.1}"}
    other = read("{beta2: {half_life: 1000 examples}}", **changes)
    tokens = read("{beta2: {half_life: 8000 tokens}}", **changes)
    for first, second in zip(other.plans(), tokens.plans(), strict=True):
        assert first.trial(0).metaparameters["beta2"] == second.trial(0).metaparameters["beta2"]
        assert first.study.id != second.study.id


def test_with_a_rule_for_the_rate_the_table_is_the_bases(read) -> None:
    plans = read(
        "{learning_rate: sqrt, weight_decay: {time_scale: 80000 tokens}, from: 64}"
    ).plans()
    rows = [[dict(trial.metaparameters) for trial in plan.trials(0, 4)] for plan in plans]
    for plan, values in zip(plans, rows, strict=True):
        k = plan.study.batch_size / 64
        for base, scaled in zip(rows[1], values, strict=True):
            assert scaled["learning_rate"] == pytest.approx(float(base["learning_rate"]) * k**0.5)
            assert scaled["weight_decay"] == pytest.approx(float(base["weight_decay"]) * k**0.5)
