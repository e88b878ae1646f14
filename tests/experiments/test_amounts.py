"""Budgets and batch sizes: sums with units, exact, in whole steps; in tokens and in sequences."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.amounts import Amount, SizeInUnit, batch_sizes, in_examples
from experiments.config.compile import parse
from experiments.errors import ExperimentError
from tests.experiments.files import RIGHT

TEXT = """\
workload: words.py:Words
grid:
  batch_size: {sizes}
  optimizer: sgd
  {more}
search:
  learning_rate: 0.1
trials: 2
budget: {budget}
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "words.py").write_text(RIGHT["files"]["words.py"])

    def experiment(sizes="8", budget="10 steps", more=""):
        text = TEXT.format(sizes=sizes, budget=budget, more=more)
        return parse(text, "my.yaml", base=tmp_path)

    return experiment


def ids(experiment):
    return [study.id for study in experiment.studies()]


@pytest.mark.parametrize(
    ("sizes", "sequences"),
    [
        ("16..128 tokens", "2..16"),
        ("[16 tokens, 64 tokens]", "[2, 8]"),
        ("16 tokens, 64..256 tokens", "[2, 8, 16, 32]"),
        ("[64 tokens, full]", "[8, full]"),
        ("64 sequences", "64"),
        ("8..32 sequences", "8..32"),
        ("[8 tokens, 2 sequences]", "[1, 2]"),
    ],
)
def test_a_plan_in_tokens_is_the_plan_in_sequences(read, sizes, sequences):
    in_tokens, plain = read(sizes), read(sequences)
    assert ids(in_tokens) == ids(plain)
    assert [p.batch_size for p in in_tokens.studies()] == [p.batch_size for p in plain.studies()]


def test_the_context_is_that_of_each_study(read):
    experiment = read("64..256 tokens", "3 epochs + 4e3 tokens + 2 steps", "context: [8, 16]")
    seen = {
        (p.workload.fields["context"], p.batch_size): p.budget_steps for p in experiment.studies()
    }
    assert seen == {
        (context, size): int(3 * (512 // size) + Fraction(4000, size * context) + 2)
        for context, sizes in ((8, (8, 16, 32)), (16, (4, 8, 16)))
        for size in sizes
    }


sizes_in_tokens = st.integers(1, 10**6)
contexts = st.integers(1, 5000)


@given(st.lists(sizes_in_tokens, min_size=1, max_size=5, unique=True), contexts, st.booleans())
def test_sizes_in_tokens_are_whole_sequences_or_refused(sizes, context, apart):
    texts = [f"{size} tokens" for size in sizes]
    read = batch_sizes(texts if apart else ", ".join(texts))
    assert read == tuple(SizeInUnit(size, "tokens") for size in sizes)
    assert batch_sizes([str(size) for size in read]) == read
    if all(size % context == 0 for size in sizes):
        assert in_examples(read, context, "sequence") == [size // context for size in sizes]
        return
    with pytest.raises(ExperimentError) as raised:
        in_examples(read, context, "sequence")
    wrong = next(size for size in sizes if size % context)
    assert raised.value.at == (sizes.index(wrong) if apart else 0,)
    nearest = int(str(raised.value.hint).split(": ")[1].split()[0])
    assert nearest % context == 0
    assert nearest > 0
    assert abs(nearest - wrong) <= context / 2 or (nearest == context and wrong < context)


@given(st.integers(1, 4000), st.integers(0, 12), contexts)
def test_a_range_doubles_in_tokens(first, doublings, context):
    low, high = first * context, first * context * 2**doublings
    read = batch_sizes(f"{low}..{high} tokens")
    assert in_examples(read, context, "sequence") == [first * 2**i for i in range(doublings + 1)]


@given(st.decimals(0, 10**9, places=2), st.integers(0, 10**6), st.integers(1, 10**4), contexts)
def test_a_budget_in_tokens_is_exact(tokens, steps, batch_size, context):
    text = f"{tokens:f} tokens + {steps} steps + 1 example"
    budget = Amount.parse(text)
    assert Amount.parse(str(budget)) == budget
    exact = steps + Fraction(1, batch_size) + Fraction(str(tokens)) / (batch_size * context)
    assert budget.in_steps(batch_size, None, context) == exact.numerator // exact.denominator
    if tokens:
        with pytest.raises(ExperimentError, match="no tokens_per_example"):
            budget.in_steps(batch_size, None, None)


def test_sizes_in_tokens_may_grow_and_have_a_rule(read):
    def of(sizes):
        ramped = f"{{from: {sizes}, ramp: {{at: [[0.5, 2]]}}}}"
        return read(ramped, "40 steps", "rule: {learning_rate: sqrt, from: 4}")

    assert ids(of("16..64 tokens")) == ids(of("2..8"))


@pytest.mark.parametrize(
    ("text", "batch_size", "steps"),
    [
        ("2000 steps", 64, 2000),
        ("50 epochs + 2000 steps", 1, 50 * 1297 + 2000),
        ("50 epochs + 2000 steps", 1024, 50 + 2000),  # the short last batch is dropped
        ("1 epoch", 1297, 1),
        ("10000 examples", 64, 156),
        ("1e6 examples", 1000, 1000),
        ("0.5 epochs+1 step", 64, 11),
        ("0.1 epochs", 1297, 0),
        ("0.3 steps + 0.7 steps", 1, 1),  # exact, as binary floats are not
    ],
)
def test_a_sum_in_steps(text, batch_size, steps):
    assert Amount.parse(text).in_steps(batch_size, 1297) == steps


@given(st.decimals(0, 10**6, places=3), st.integers(1, 10**7), st.decimals(0, 10**9, places=1))
def test_text_and_budget_are_the_same(epochs, steps, examples):
    text = f"{epochs:f} epochs + {steps} steps + {examples:f} examples"
    budget = Amount.parse(text)
    assert Amount.parse(str(budget)) == budget


def test_the_written_form_leaves_out_what_is_zero():
    assert str(Amount.parse("2000 steps + 50.50 epochs")) == "50.5 epochs + 2000 steps"
