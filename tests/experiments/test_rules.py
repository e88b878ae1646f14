"""Rules that derive metaparameters from those of another batch size, or from an amount of data."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import optimizers
from experiments.amounts import Amount
from experiments.config.compile import Experiment
from experiments.factors.horizon import decay_factor
from experiments.factors.rule import Rule
from tests.experiments.files import RIGHT, own

VALUES = {"learning_rate": 0.01, "beta2": 0.95, "weight_decay": 0.1, "beta1": 0.9}


def parsed(**given: Any) -> Rule:
    rule = Rule.parse(given)
    assert rule is not None
    return rule


def made(**kinds: Any) -> Rule:
    return parsed(**kinds, **{"from": 64})


@pytest.mark.parametrize(("kind", "power"), [("none", 0), ("sqrt", 0.5), ("linear", 1)])
@given(size=st.integers(1, 10**5), rate=st.floats(1e-4, 10), decay=st.floats(1e-5, 1))
def test_the_learning_rate_and_the_time_scale_of_weight_decay(
    kind: str, power: float, size: int, rate: float, decay: float
) -> None:
    """B / (learning rate · weight decay) stays (Wang & Aitchison 2024)."""
    rule, values = made(learning_rate=kind, weight_decay="time_scale"), {}
    values = rule.applied({"learning_rate": rate, "weight_decay": decay}, size, {})
    rate_there, decay_there = float(values["learning_rate"]), float(values["weight_decay"])
    assert rate_there == pytest.approx(rate * (size / 64) ** power, rel=1e-8)
    assert size / (rate_there * decay_there) == pytest.approx(64 / (rate * decay), rel=1e-7)


@given(size=st.integers(1, 4096), half_life=st.floats(64, 1e7))
def test_the_half_life_of_beta2_in_examples_stays(size: int, half_life: float) -> None:
    """β₂ = 2^(-B / half-life) (Marek et al. 2025), at the base and elsewhere."""
    base = 2 ** (-64 / half_life)
    there = float(made(beta2="half_life").applied({"beta2": base}, size, {})["beta2"])
    # Of 1 - β₂, which is small; a value itself has 16 digits.
    assert 1 - there == pytest.approx(
        -math.expm1(-size / half_life * math.log(2)), rel=1e-7, abs=1e-8
    )


@pytest.mark.parametrize(("kind", "power"), [("sqrt", 0.5), ("linear", 1)])
@pytest.mark.parametrize("name", ["momentum", "nesterov", "rmsprop", "lars"])
@given(size=st.integers(1, 4096), momentum=st.floats(0.05, 0.99), rate=st.floats(1e-4, 10))
def test_beside_a_half_life_of_momentum_the_effective_rate_is_scaled(
    name: str, kind: str, power: float, size: int, momentum: float, rate: float
) -> None:
    """lr' / (1 - μ^k) = √k or k times lr / (1 - μ), where lr alone would leave it as it was."""
    rule, effective = made(learning_rate=kind, momentum="half_life"), effective_rate(name)
    base = {"learning_rate": rate, "momentum": momentum}
    there = rule.applied(base, size, optimizers.get(name).defaults, None, effective)
    k = size / 64
    assert there["momentum"] == pytest.approx(momentum**k, abs=1e-8)
    expected = rate * k**power * -math.expm1(k * math.log(momentum)) / (1 - momentum)
    assert there["learning_rate"] == pytest.approx(expected, rel=1e-7)
    assert effective(there) == pytest.approx(k**power * float(effective(base) or 0), rel=1e-7)


def effective_rate(name: str):
    return optimizers.get(name).effective_learning_rate


def test_a_momentum_from_an_amount_of_data_scales_the_effective_rate_too() -> None:
    rule = made(learning_rate="linear", momentum={"half_life": "500 examples"})
    effective = effective_rate("momentum")
    base, there = (
        rule.applied({"learning_rate": 0.1}, size, {}, None, effective) for size in (64, 512)
    )
    assert base == {"learning_rate": 0.1, "momentum": pytest.approx(2 ** (-64 / 500))}
    assert there["momentum"] == pytest.approx(2 ** (-512 / 500))
    assert effective(there) == pytest.approx(8 * float(effective(base) or 0))
    text = "learning_rate linear (effective), momentum half_life 500 examples, from 64"
    assert str(rule) == text


@pytest.mark.parametrize("name", ["signum", "schedule-free-sgd"])
def test_without_an_effective_rate_the_rate_itself_is_scaled(name: str) -> None:
    rule = made(learning_rate="linear", momentum="half_life")
    there = rule.applied(
        {"learning_rate": 0.1, "momentum": 0.9}, 512, {}, None, effective_rate(name)
    )
    assert there == {"learning_rate": 0.8, "momentum": pytest.approx(0.9**8)}


def test_an_experiment_trains_and_records_the_effective_rate(tmp_path: Path) -> None:
    """Its trials lie inside the recorded space, and the results' text says which rate it is."""
    rule = "{learning_rate: linear, momentum: half_life, from: 64}"
    studies = experiment(tmp_path, rule, optimizer="momentum").studies()
    effective = effective_rate("momentum")
    for study in studies:
        k, tops = study.batch_size / 64, study.notation()["learning_rate"]["log"]
        assert study.technique["rule"] == (
            "learning_rate linear (effective), momentum half_life, from 64"
        )
        for base, trial in zip(studies[1].draw(0, 4), study.draw(0, 4), strict=True):
            there, before = dict(trial.metaparameters), dict(base.metaparameters)
            assert effective(there) == pytest.approx(k * float(effective(before) or 0))
            assert tops[0] <= float(there["learning_rate"]) <= tops[1]
    low, high = studies[2].notation()["learning_rate"]["log"]
    assert low == pytest.approx(1e-4 * 4 * (1 - 0.1**4) / (1 - 0.1))
    assert high == pytest.approx(10 * 4 * (1 - 0.99**4) / (1 - 0.99))


def test_what_no_rule_names_stays_and_the_base_is_unchanged() -> None:
    rule = made(learning_rate="sqrt", beta2="half_life", weight_decay="time_scale")
    assert rule.applied(VALUES, 64, {}) == VALUES
    there = rule.applied(VALUES, 256, {})
    assert there == {
        "learning_rate": 0.02, "beta1": 0.9,
        "beta2": pytest.approx(0.95**4, abs=1e-9), "weight_decay": 0.2,
    }  # fmt: skip
    # A value that the experiment does not give is the optimizer's default, at the base.
    assert rule.applied({"learning_rate": 1.0}, 256, {"beta2": 0.999})["beta2"] == pytest.approx(
        0.999**4
    )
    assert str(rule) == "learning_rate sqrt, beta2 half_life, weight_decay time_scale, from 64"


TEXT = """\
workload: {workload}
grid:
  batch_size: {sizes}
  optimizer: {optimizer}
  rule: {rule}
search: {search}
budget: 200 steps
trials: 4
extend: 2
"""


def experiment(tmp_path: Path, rule: str, **changes: str) -> Experiment:
    parts = {"workload": "digits-softmax", "sizes": "[16, 64, 256]", "optimizer": "adamw"}
    return own(tmp_path, TEXT.format(rule=rule, **{**parts, "search": "{}", **changes}))


def test_a_rule_trains_the_table_of_the_base(tmp_path: Path) -> None:
    """Row by row, by the rule; free tuning beside it is what it is without."""
    rules = "[none, {learning_rate: sqrt, weight_decay: time_scale, from: 64}]"
    file = experiment(tmp_path, rules)
    free, by_rule = file.studies()[:3], file.studies()[3:]
    assert [p.technique.get("rule") for p in by_rule] == [
        "learning_rate sqrt, weight_decay time_scale, from 64"
    ] * 3
    assert [(p.keep, p.search.extend) for p in (*free, *by_rule)] == [(4, 2)] * 3 + [(None, 0)] * 3
    base = [dict(trial.metaparameters) for trial in free[1].draw(0, 8)]
    for study, size in zip(by_rule, (16, 64, 256), strict=True):
        k = size / 64
        for values, trial in zip(base, study.draw(0, 8), strict=True):
            there = trial.metaparameters
            assert there["learning_rate"] == pytest.approx(float(values["learning_rate"]) * k**0.5)
            assert there["weight_decay"] == pytest.approx(float(values["weight_decay"]) * k**0.5)
            assert there.keys() == values.keys()
        low, high = free[1].notation()["learning_rate"]["log"]
        assert study.notation()["learning_rate"]["log"] == pytest.approx(
            [low * k**0.5, high * k**0.5]
        )
    assert len({trial.id for study in (*free, *by_rule) for trial in study.draw(0, 4)}) == 24
    without = experiment(tmp_path, "none").studies()
    assert without == free


def test_without_a_rule_for_the_rate_each_study_is_tuned(tmp_path: Path) -> None:
    free, by_rule = (
        experiment(tmp_path, rule, search="{beta2: 0.99}").studies()
        for rule in ("none", "{beta2: half_life, from: 64}")
    )
    for study in by_rule:
        values = [trial.metaparameters for trial in study.draw(0, 4)]
        k = study.batch_size / 64
        assert [v["beta2"] for v in values] == pytest.approx([0.99**k] * 4)
        assert (study.keep, study.search.extend) == (4, 2)
    rates = [
        {t.metaparameters["learning_rate"] for p in studies for t in p.draw(0, 4)}
        for studies in (free, by_rule)
    ]
    assert len(rates[1]) == 12
    assert not rates[0] & rates[1]


def test_a_rule_beside_the_grid(tmp_path: Path) -> None:
    in_grid = "  rule: {learning_rate: linear, from: 16}\n"
    text = "workload: digits-softmax\ngrid:\n  batch_size: [16, 64]\n  optimizer: sgd\n"
    studies, beside = (own(tmp_path, text + rule).studies() for rule in (in_grid, in_grid.strip()))
    assert {p.technique["rule"] for p in beside} == {"learning_rate linear, from 16"}
    assert studies == beside


def test_a_rule_scales_the_rates_of_both_parts_of_muon(tmp_path: Path) -> None:
    """``adamw.learning_rate`` as the shared one, in trials and in the recorded space."""
    rule = "{learning_rate: sqrt, weight_decay: time_scale, from: 64}"
    search = "{muon: {adamw.learning_rate: {log: [1e-3, 0.1]}, adamw.weight_decay: 0.2}}"
    changes = {"workload": "digits-mlp", "optimizer": "muon", "search": search}
    base, larger = experiment(tmp_path, rule, **changes).studies()[1:]
    for trial, scaled in zip(base.draw(0, 4), larger.draw(0, 4), strict=True):
        before, after = trial.metaparameters, scaled.metaparameters
        assert before["adamw.weight_decay"] == 0.2
        for name in ("learning_rate", "adamw.learning_rate", "adamw.weight_decay"):
            assert after[name] == pytest.approx(2 * float(before[name]), rel=1e-8)
    assert larger.notation()["adamw.learning_rate"]["log"] == pytest.approx([2e-3, 0.2])


def of_words(folder: Path, rule: str, **changes: str) -> Experiment:
    """An experiment on sequences of eight tokens."""
    (folder / "words.py").write_text(RIGHT["files"]["words.py"])
    return experiment(folder, rule, workload="words.py:Words", **changes)


@given(
    size=st.integers(1, 2**20), steps=st.floats(0.1, 1e6),
    name=st.sampled_from(["beta1", "beta2", "momentum"]),
)  # fmt: skip
def test_a_half_life_in_examples_is_the_same_at_every_batch_size(
    size: int, steps: float, name: str
) -> None:
    """ln(1/2) / ln(β) steps of B examples each (Marek et al. 2025)."""
    half_life = steps * size
    rule = parsed(**{name: {"half_life": f"{half_life!r} examples"}})
    for k in (1, 2):
        factor = float(rule.applied({name: 0.5}, k * size, {})[name])
        # To nine figures of 1 - β, which is what a number of 16 figures has of one near 1.
        exact = -math.expm1(-math.log(2) * k * size / half_life)
        assert 1 - factor == pytest.approx(exact, rel=1e-8, abs=1e-15)
        if exact < 0.99:
            measured = k * size * math.log(0.5) / math.log1p(factor - 1)
            assert measured == pytest.approx(half_life, rel=1e-6)


@given(size=st.integers(1, 10**5), tokens=st.integers(1, 4096), half_life=st.floats(1e9, 1e12))
def test_tokens_are_those_of_the_batch(size: int, tokens: int, half_life: float) -> None:
    amount = Fraction(half_life)
    in_tokens = decay_factor(Amount(tokens=amount), size, tokens)
    assert in_tokens == decay_factor(Amount(examples=amount / tokens), size, None)
    assert in_tokens == pytest.approx(0.5 ** (size * tokens / half_life), abs=1e-9)


@given(
    size=st.integers(1, 10**5), rate=st.floats(1e-6, 10), times=st.floats(1.01, 1e6),
    kind=st.sampled_from(["none", "sqrt", "linear"]),
)  # fmt: skip
def test_a_time_scale_holds_at_the_learning_rate_of_the_trial(
    size: int, rate: float, times: float, kind: str
) -> None:
    """B / (learning rate · weight decay), also of a rate that a rule gives (Wang & Aitchison)."""
    scale = times * size
    time_scale = {"time_scale": f"{scale!r} examples"}
    at_tuned_rate = parsed(weight_decay=time_scale)
    for rule in (at_tuned_rate, made(learning_rate=kind, weight_decay=time_scale)):
        values = rule.applied({"learning_rate": rate, "weight_decay": 7.0}, size, {})
        new_rate, decay = float(values["learning_rate"]), float(values["weight_decay"])
        assert size / (new_rate * decay) == pytest.approx(scale, rel=1e-8)
    default = at_tuned_rate.applied({}, size, {"learning_rate": 1e-3})
    assert default["weight_decay"] == pytest.approx(size / (1e-3 * scale), rel=1e-8)


def test_equal_amounts_are_one_rule() -> None:
    texts = ("1e6 tokens", "1000000 tokens", "1000000.0 token", " 1E+6  tokens")
    assert len({parsed(beta2={"half_life": text}) for text in texts}) == 1
    several = made(
        weight_decay={"time_scale": "2.5e7 tokens"},
        beta2={"half_life": "1e6 tokens"},
        learning_rate="sqrt",
    )
    assert str(several) == (
        "learning_rate sqrt, beta2 half_life 1000000 tokens, "
        "weight_decay time_scale 25000000 tokens, from 64"
    )
    assert str(parsed(beta2={"half_life": "0.5 examples"})) == "beta2 half_life 0.5 examples"


def test_what_a_rule_gives_is_not_tuned_and_needs_no_base(tmp_path: Path) -> None:
    """Free tuning beside it is what it is without; the rest is tuned at each batch size."""
    scale = "{beta2: {half_life: 8000 tokens}, weight_decay: {time_scale: 80000 tokens}}"
    studies = of_words(tmp_path, f"[none, {scale}]", sizes="16..256").studies()
    free, by_rule = studies[:5], studies[5:]
    without = of_words(tmp_path, "none", sizes="16..256").studies()
    assert free == without
    for study in by_rule:
        size = study.batch_size
        assert study.search.space.keys() == study.notation().keys() == {"learning_rate"}
        assert (study.keep, study.search.table_from) == (4, None)
        for trial in study.draw(0, 4):
            values = trial.metaparameters
            assert values["beta2"] == pytest.approx(0.5 ** (size * 8 / 8000), abs=1e-9)
            decay = size * 8 / (80000 * float(values["learning_rate"]))
            assert values["weight_decay"] == pytest.approx(decay, rel=1e-8)
    rates = {t.metaparameters["learning_rate"] for study in by_rule for t in study.draw(0, 4)}
    assert len(rates) == 20
    # The same half-life, in sequences of eight tokens: the same metaparameters.
    changes = {"sizes": "16..256", "search": "{weight_decay: 0.1}"}
    examples, tokens = (
        of_words(tmp_path, f"{{beta2: {{half_life: {amount}}}}}", **changes).studies()
        for amount in ("1000 examples", "8000 tokens")
    )
    for first, second in zip(examples, tokens, strict=True):
        assert first.trial(0).metaparameters["beta2"] == second.trial(0).metaparameters["beta2"]
        assert first.id != second.id
