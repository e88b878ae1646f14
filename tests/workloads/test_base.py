"""The contract: fields, facts, and what Classification brings."""

from __future__ import annotations

import dataclasses
import pickle
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from workloads import Classification, LanguageModel, Workload, WorkloadError, load


class Own(Classification):
    target = "validation_error < 0.05"
    width: int = 64
    widths: tuple[int, ...] = (4, 2)
    rate: float = 1.0

    def data(self):
        x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
        return {"train": (x, y), "validation": (x, y)}

    def model(self):
        return torch.nn.Linear(3, self.width)


def test_a_subclass_is_a_frozen_dataclass_of_its_annotated_attributes() -> None:
    own = Own(width=8)
    assert own.fields == {"label_smoothing": 0.0, "width": 8, "widths": [4, 2], "rate": 1.0}
    assert own == load(Own, {"width": 8})
    assert own != Own()
    assert own.name == own.dataset == own.model_name == "Own"
    assert pickle.loads(pickle.dumps(own)) == own
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.width = 9  # type: ignore[misc]


def test_a_name_is_that_of_the_class_that_brings_the_data_or_the_model() -> None:
    class Wide(Own):
        width: int = 128

    class Bigram(LanguageModel):
        target = "validation_cross_entropy < 2"

        def model(self):
            return torch.nn.Embedding(self.vocabulary_size, self.vocabulary_size)

    assert (Wide().name, Wide().dataset, Wide().model_name) == ("Wide", "Own", "Own")
    assert Bigram().model_name == "Bigram"
    assert not hasattr(LanguageModel, "model_name")


def test_values_are_what_the_annotations_say() -> None:
    own = Own(rate=1, widths=[8, 4])  # type: ignore[arg-type]
    assert (type(own.rate), own.widths) == (float, (8, 4))
    assert Own(widths=8).widths == (8,)  # type: ignore[arg-type]
    assert hash(own) == hash(load(own))
    assert load(own, {"width": 5}) == Own(rate=1.0, widths=(8, 4), width=5)


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"widht": 3}, "workload Own has no field 'widht'", "did you mean 'width'?"),
        ({"width": "wide"}, "field 'width' of workload Own cannot be 'wide'", None),
        ({"width": 1.5}, "field 'width' of workload Own cannot be 1.5", None),
        ({"label_smoothing": 1.0}, "'label_smoothing' of workload Own cannot be 1.0", None),
    ],
)
def test_wrong_fields_are_named(fields, message, hint) -> None:
    for make in (lambda: Own(**fields), lambda: load(Own, fields)):
        with pytest.raises(WorkloadError) as caught:
            make()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.hint == hint


def test_fields_go_by_name_and_those_without_default_are_needed() -> None:
    class Needs(Own):
        depth: int

    with pytest.raises(WorkloadError, match="needs a value for its field 'depth'"):
        Needs()  # type: ignore[call-arg]
    with pytest.raises(WorkloadError, match="by name"):
        Own(3)  # type: ignore[call-arg]
    assert Needs(depth=2).fields["depth"] == 2


def test_an_annotated_fact_stays_a_fact() -> None:
    class Annotated(Own):
        target: str = "validation_error < 0.5"  # type: ignore[misc]
        constant: ClassVar[int] = 3

    assert "target" not in Annotated().fields
    assert "constant" not in Annotated().fields
    assert Annotated.target == "validation_error < 0.5"


def test_a_field_may_not_hide_what_has_a_meaning() -> None:
    with pytest.raises(WorkloadError, match="'loss' cannot be a field"):

        class Hides(Own):
            loss: float = 1.0  # type: ignore[assignment]

    with pytest.raises(WorkloadError, match="mutable default"):

        class Mutable(Own):
            sizes: list = [1]  # noqa: RUF012


def test_a_method_that_is_missing_is_named() -> None:
    class Empty(Workload):
        target = "validation_loss < 1"

    for call in ("data", "model"):
        with pytest.raises(WorkloadError, match=f"Empty has no method {call}"):
            getattr(Empty(), call)()
    for call in ("loss", "metrics"):
        with pytest.raises(WorkloadError, match=f"Empty has no method {call}"):
            getattr(Empty(), call)(None, ())


logits = st.lists(
    st.lists(st.floats(-30, 30, width=32), min_size=5, max_size=5), min_size=1, max_size=8
)


@settings(max_examples=50, deadline=None)
@given(values=logits, epsilon=st.floats(0, 0.9), label=st.integers(0, 4))
def test_smoothing_is_cross_entropy_against_the_papers_distribution(values, epsilon, label) -> None:
    output = torch.tensor(values, dtype=torch.float64)
    y = torch.full((len(output),), label)
    goal = torch.full_like(output, epsilon / 4)
    goal[:, label] = 1 - epsilon
    expected = F.cross_entropy(output, goal, reduction="none")
    torch.testing.assert_close(Own(label_smoothing=epsilon).loss(output, (output, y)), expected)


@settings(max_examples=30, deadline=None)
@given(values=logits, cut=st.integers(0, 8))
def test_examples_do_not_see_each_other(values, cut) -> None:
    """What the sums over parts of a batch rest on: a part has the values the whole has."""
    output, own = torch.tensor(values), Own(label_smoothing=0.1)
    y = torch.arange(len(output)) % 5
    whole = {"loss": own.loss(output, (output, y)), **own.metrics(output, (output, y))}
    part = (output[cut:], y[cut:])
    parts = {"loss": own.loss(part[0], part), **own.metrics(part[0], part)}
    for name, value in whole.items():
        assert value.shape == (len(output),)
        torch.testing.assert_close(parts[name], value[cut:])


def test_metrics_are_errors_and_unsmoothed_cross_entropy() -> None:
    output = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    metrics = Own(label_smoothing=0.3).metrics(output, (output, torch.tensor([0, 1])))
    assert metrics["error"].tolist() == [0.0, 1.0]
    torch.testing.assert_close(metrics["cross_entropy"], torch.tensor([0.126928, 2.126928]))


def test_label_smoothing_may_be_traced() -> None:
    output, y = torch.randn(6, 5), torch.arange(6) % 5

    def loss(epsilon):
        own = Own()
        object.__setattr__(own, "label_smoothing", epsilon)
        return own.loss(output, (output, y))

    many = torch.func.vmap(loss)(torch.tensor([0.0, 0.1]))
    torch.testing.assert_close(many[0], Own().loss(output, (output, y)))
    torch.testing.assert_close(many[1], Own(label_smoothing=0.1).loss(output, (output, y)))
