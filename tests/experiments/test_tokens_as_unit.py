"""Budgets and batch sizes in tokens: what they are in sequences."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.amounts import Budget, SizeInUnit, batch_sizes, in_examples
from experiments.config.compile import parse
from experiments.errors import ExperimentError

TEXT = """\
workload: my_tokens.py:Words
grid:
  batch_size: {sizes}
  optimizer: sgd
  {more}
search:
  learning_rate: 0.1
trials: 2
budget: {budget}
"""
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
        x = torch.zeros(100, self.context)
        return {"train": (x,), "validation": (x[:5],)}

    def model(self):
        return torch.nn.Linear(self.context, 1)

    def loss(self, output, batch):
        return output.square().mean(1)

    def metrics(self, output, batch):
        return {"loss": self.loss(output, batch)}

class Rows(Words):
    example_unit = "row"
    tokens_per_example = None
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "my_tokens.py").write_text(WORKLOAD)

    def experiment(sizes="8", budget="10 steps", more="", workload="Words"):
        text = TEXT.format(sizes=sizes, budget=budget, more=more)
        return parse(text.replace("Words", workload), "my.yaml", base=tmp_path)

    return experiment


def ids(experiment):
    return [plan.study.id for plan in experiment.plans()]


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
    assert [p.study.batch_size for p in in_tokens.plans()] == [
        p.study.batch_size for p in plain.plans()
    ]


def test_the_context_is_that_of_each_study(read):
    experiment = read("64..256 tokens", "3 epochs + 4e3 tokens + 2 steps", "context: [8, 16]")
    seen = {
        (p.study.workload.fields["context"], p.study.batch_size): p.study.budget_steps
        for p in experiment.plans()
    }
    steps = {
        (context, size): 3 * (100 // size) + 4000 // (size * context) + 2
        for context, sizes in ((8, (8, 16, 32)), (16, (4, 8, 16)))
        for size in sizes
    }
    exact = {(c, b): int(3 * (100 // b) + Fraction(4000, b * c) + 2) for c, b in steps}
    assert seen == exact


def test_the_resolved_file_is_the_same_experiment(read, tmp_path):
    experiment = read("[64 tokens, 128 tokens]", "5 epochs + 2e6 tokens", "context: [8, 16]")
    again = parse(experiment.to_yaml(), "again.yaml", base=tmp_path)
    assert ids(again) == ids(experiment)
    assert "64 tokens" in experiment.to_yaml()
    assert "5 epochs + 2000000 tokens" in experiment.to_yaml()


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


@given(
    st.decimals(0, 10**9, places=2),
    st.integers(0, 10**6),
    st.integers(1, 10**4),
    contexts,
)
def test_a_budget_in_tokens_is_exact(tokens, steps, batch_size, context):
    text = f"{tokens:f} tokens + {steps} steps + 1 example"
    budget = Budget.parse(text)
    assert Budget.parse(str(budget)) == budget
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
