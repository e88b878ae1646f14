"""Budgets and batch sizes in tokens: what they are in sequences, and what cannot be."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.amounts import (
    AmountError,
    Budget,
    SizeInUnit,
    batch_sizes,
    in_examples,
)
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


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"sizes": "[16 tokens, 100 tokens]"},
            "my.yaml:3: grid.batch_size: batch size 100 tokens is no whole number of sequences: "
            "8 tokens each",
            "the nearest that is: 96 tokens",
        ),
        ({"sizes": "102 tokens"}, "batch size 102 tokens is no whole", "is: 104 tokens"),
        ({"sizes": "3 tokens"}, "batch size 3 tokens is no whole", "is: 8 tokens"),
        (
            {"sizes": "16 tokens, 64 tokens", "more": "context: [8, 32]"},
            "batch size 16 tokens is no whole number of sequences: 32 tokens each",
            "32 tokens",
        ),
        (
            {"sizes": "\n    - 16 tokens\n    - 17 tokens"},
            "my.yaml:5: grid.batch_size: batch size 17 tokens",
            "16 tokens",
        ),
        ({"sizes": "[8, 16 tokens]"}, "batch size 16 tokens has a unit, and 8 has none", "each"),
        ({"sizes": "[16 tokens, 16 token]"}, "batch size 16 tokens is given twice", "keep one"),
        (
            {"sizes": "[16 tokens, 2 sequences]"},
            "batch size 2 sequences is given twice: 16 tokens is the same",
            "keep one",
        ),
        ({"sizes": "full tokens"}, "'full tokens' is not a batch size", "full"),
        ({"sizes": "0 tokens"}, "batch size 0 is below 1", ""),
        ({"sizes": "64..8 tokens"}, "the range 64..8 is reversed", "8..64"),
        ({"sizes": "8 tonnes"}, "'8 tonnes' is not a batch size", ""),
        (
            {"sizes": "16 tokens", "workload": "Rows"},
            "my.yaml:3: grid.batch_size: batch size 16 tokens is in tokens, and the workload has "
            "no tokens_per_example",
            "tokens_per_example = 64",
        ),
        (
            {"sizes": "16 sequences", "workload": "Rows"},
            "batch size 16 sequences is in sequences, and the workload's data are rows",
            "write 16",
        ),
        (
            {"budget": "1 epoch + 2e7 tokens", "workload": "Rows"},
            "my.yaml:9: budget 1 epochs + 20000000 tokens has tokens, and the workload has no "
            "tokens_per_example",
            "tokens_per_example = 64",
        ),
    ],
)
def test_what_cannot_be(read, changes, message, hint):
    with pytest.raises(ExperimentError) as raised:
        read(**changes)
    assert message in str(raised.value)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("amounts", "line"), [(("8 tokens", "9 steps"), 3), (("8", "9 tokens"), 9)]
)
@pytest.mark.usefixtures("read")
def test_tokens_of_a_tuned_context_are_not_known(amounts, line, tmp_path):
    text = TEXT.format(sizes=amounts[0], budget=amounts[1], more="")
    text = text.replace("rate: 0.1", "rate: 0.1\n  context: {integer: [8, 16]}")
    line += line > 7
    message = f"my.yaml:{line}: the tokens of a sequence depend on context, which is tuned"
    with pytest.raises(ExperimentError, match=message):
        parse(text, "my.yaml", base=tmp_path)


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
    with pytest.raises(AmountError) as raised:
        in_examples(read, context, "sequence")
    wrong = next(size for size in sizes if size % context)
    assert raised.value.position == (sizes.index(wrong) if apart else 0)
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
        with pytest.raises(AmountError, match="no tokens_per_example"):
            budget.in_steps(batch_size, None, None)


def test_sizes_in_tokens_may_grow_and_have_a_rule(read):
    def of(sizes):
        ramped = f"{{from: {sizes}, ramp: {{at: [[0.5, 2]]}}}}"
        return read(ramped, "40 steps", "rule: {learning_rate: sqrt, from: 4}")

    assert ids(of("16..64 tokens")) == ids(of("2..8"))
    with pytest.raises(ExperimentError, match="4 is not among the batch sizes of the grid"):
        of("64..256 tokens")
    with pytest.raises(ExperimentError, match=r"my.yaml:3: grid.batch_size.from: batch size 17 to"):
        of("17 tokens")
