"""Language models: what a token sees, layers and initial weights, decay, and rows of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workloads
from experiments.optimizers import get
from experiments.optimizers.groups import parameter_options
from experiments.plan import Study, WorkloadRef
from experiments.records.rows import study_columns
from tests.problems import engine, study, trials
from workloads.text.lm_lstm import LMLSTM, _Layer
from workloads.text.lm_transformer import LMTransformer, _rotated

SMALL: dict[str, dict[str, Any]] = {
    "lm-transformer": {"layers": 1, "width": 8, "heads": 2, "context": 6},
    "lm-lstm": {"width": 6, "context": 4},
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "learned, tied": ("lm-transformer", {}),
    "learned, untied": ("lm-transformer", {"tied": False}),
    "rotary, tied": ("lm-transformer", {"positions": "rotary"}),
    "rotary, untied": ("lm-transformer", {"positions": "rotary", "tied": False}),
    "LSTM, untied": ("lm-lstm", {}),
    "learned, dropout": ("lm-transformer", {"layers": 2, "dropout": 0.2}),
    "LSTM, tied, dropout": ("lm-lstm", {"tied": True, "dropout": 0.2}),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a text in which each letter makes some letters likely."""
    draw = np.random.default_rng(0)
    letters = np.cumsum(draw.integers(1, 4, size=4000)) % 11
    (tmp_path / "text.txt").write_bytes(bytes(97 + letters.astype(np.uint8)))
    return tmp_path


def of(folder: Path, name: str) -> Study:
    spec, fields = MODELS[name]
    fields = {"text": "file:text.txt", **SMALL[spec], **fields}
    ref = WorkloadRef(spec=spec, fields=fields, base=str(folder))
    target = "validation_cross_entropy < 1"
    return study(workload=ref, target=target, optimizer="adamw", batch_size=32)


@pytest.mark.slow
def test_it_learns_more_than_how_often_letters_occur(folder: Path) -> None:
    """ln 11 = 2.40 without context; ln 3 = 1.10 is the least."""
    a_study = of(folder, "learned, tied")
    usual = trials(a_study, 1, learning_rate=0.02, weight_decay=0.0, beta1=0.9, beta2=0.99)
    run = engine("module", a_study, usual, steps=250)
    assert 1.09 < run.evaluate("validation")[0]["cross_entropy"] < 1.3


@pytest.mark.parametrize("name", MODELS)
def test_no_token_sees_what_follows_it(folder: Path, name: str) -> None:
    spec, fields = MODELS[name]
    fields = {"text": "file:text.txt", **SMALL[spec], **fields}
    workload: Any = workloads.load(spec, fields, folder)
    model = workload.model().eval()
    length = SMALL[spec]["context"]
    ids = torch.randint(97, 107, (3, length))
    changed = ids.clone()
    changed[:, 3] += 1
    first, second = model(ids).detach(), model(changed).detach()
    assert torch.equal(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3:], second[:, 3:])
    loss = workload.loss(first, (ids, changed))
    by_hand = [
        -sum(float(F.log_softmax(first[i, t], -1)[changed[i, t]]) for t in range(length)) / length
        for i in range(3)
    ]
    assert loss.tolist() == pytest.approx(by_hand, rel=1e-5)
    assert workload.metrics(first, (ids, changed))["cross_entropy"].tolist() == loss.tolist()


def test_the_lstm_is_torchs() -> None:
    layer, torchs = _Layer(7), nn.LSTM(7, 7, batch_first=True)
    weights = {"weight_ih_l0": layer.input.weight, "bias_ih_l0": layer.input.bias}
    weights |= {"weight_hh_l0": layer.hidden.weight, "bias_hh_l0": torch.zeros(28)}
    torchs.load_state_dict(weights)
    x = torch.randn(3, 9, 7)
    torch.testing.assert_close(layer(x), torchs(x)[0])


def test_rotary_positions_depend_on_distances_alone() -> None:
    """Su et al. 2021, equation 16: the product of a query and a key moves with neither."""
    query, key = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    products = _rotated(query.expand(10, 8)) @ _rotated(key.expand(10, 8)).T
    for distance in range(-9, 10):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert products[0, 0] == pytest.approx(float(query @ key))
    assert len(set(products[0].tolist())) == 10


def test_a_transformer_starts_as_nanogpt_has_it() -> None:
    torch.manual_seed(0)
    named = dict(LMTransformer(width=128, layers=8, tied=False).model().named_parameters())
    for name, parameter in named.items():
        if name.endswith("bias"):
            assert not parameter.any()
        elif "norm" in name:
            assert (parameter == 1).all()
        else:
            residual = name.endswith(("attention.out.weight", "mlp.2.weight"))
            expected = 0.02 / 4 if residual else 0.02
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.03)


def test_matrices_alone_decay() -> None:
    for workload, decayed in (
        (LMTransformer(layers=1), {"attention.qkv", "attention.out", "mlp.0", "mlp.2"}),
        (LMLSTM(layers=1), {"layers.0.input", "layers.0.hidden", "head"}),
    ):
        named = dict(workload.model().named_parameters())
        options = parameter_options(get("adamw"), workload, named)
        rest = {name for name in named if name not in options}
        assert {name.removeprefix("blocks.0.").removesuffix(".weight") for name in rest} == decayed
        assert all(option == {"weight_decay": 0.0} for option in options.values())


@pytest.mark.parametrize("name", ["learned, tied", "LSTM, untied"])
def test_rows_have_tokens_that_follow_the_context(folder: Path, name: str) -> None:
    a_study = of(folder, name)
    ref = a_study.workload
    workload = workloads.load(ref.spec, ref.fields, ref.base)
    columns = study_columns(a_study, workload)
    assert columns["example_unit"] == "sequence"
    assert columns["tokens_per_example"] == SMALL[str(ref.spec)]["context"]
    assert columns["dataset"] == workload.dataset
    other = workloads.load(workload, {"context": 9})
    assert study_columns(a_study, other)["tokens_per_example"] == 9
