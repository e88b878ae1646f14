"""Dropout and noise follow the example's place in the global batch, however it is trained."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from experiments.engines.module import ModuleEngine
from experiments.engines.randomness import Draw, ExampleRandomness, RandomDraws, key_of
from experiments.errors import ExperimentError
from experiments.plan import Pack, WorkloadRef
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, trials
from workloads import WorkloadError

pytestmark = pytest.mark.usefixtures("one_thread")

WORKLOADS = """
import torch
from torch import nn
from torch.nn import functional as F
from tests.problems import Tiny


class Dropped(Tiny):
    rate: float = 0.3

    def model(self):
        return nn.Sequential(
            nn.Linear(6, 8), nn.Dropout(self.rate, inplace=True), nn.ReLU(inplace=True),
            nn.Dropout(0.2), nn.Linear(8, 3),
        )


class Net(nn.Module):
    '''Every way to draw that is supported, batch first and second, heads folded into the batch.'''

    def __init__(self):
        super().__init__()
        self.up, self.out = nn.Linear(6, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)

    def forward(self, x):
        x = self.up(x).unsqueeze(1).repeat(1, 5, 1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.attention(x, x, x)[0]
        x = self.layer(x.transpose(0, 1)).transpose(0, 1)
        heads = x.view(len(x), 5, 2, 4).transpose(1, 2)
        p = 0.2 if self.training else 0.0
        mixed = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=p, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(x.shape)
        x = F.dropout1d(x, 0.1, self.training) + F.alpha_dropout(x, 0.1, self.training)
        if self.training:
            x = x + 0.1 * torch.randn_like(x) + 0.1 * torch.rand(x.shape) - 0.05
            x = x * torch.empty(len(x), 1, 1).bernoulli_(0.8)  # stochastic depth
            x = x + 0.01 * x.new_empty(x.shape).normal_(0, 2)
            x = x + 0.1 * torch.bernoulli(torch.full_like(x, 0.3))
            x = x + 0.1 * F.gumbel_softmax(x) + 0.1 * torch.empty_like(x).uniform_(-1, 1)
            x = x * F.dropout(torch.ones(8), 0.1)  # one mask for all examples
        return self.out(x.mean(1))


class Everything(Tiny):
    def model(self): return Net()


class Recurrent(Tiny):
    def model(self): return Lstm()


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(2, 8, 2, dropout=0.2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x): return self.out(self.lstm(x.view(-1, 3, 2))[0][:, -1])


class Skipping(Tiny):
    def model(self): return Skips()


class Skips(nn.Module):
    '''Leaves out a layer at random, for the whole batch.'''

    def __init__(self):
        super().__init__()
        self.up, self.layer, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = F.dropout(self.up(x), 0.2, self.training)
        if not self.training or torch.rand(()) < 0.5:
            x = F.dropout(self.layer(x), 0.2, self.training)
        return self.out(F.dropout(x, 0.2, self.training))


class Odd(Tiny):
    def model(self): return Shuffles()


class Shuffles(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x[:, torch.randperm(6)] if self.training else x)
"""


@pytest.fixture
def made(tmp_path: Path):
    (tmp_path / "drops.py").write_text(WORKLOADS)

    def study_of(name: str, **changes):
        ref = WorkloadRef(spec=f"drops.py:{name}", base=str(tmp_path))
        return study(**{"workload": ref, "precision": "float64", "batch_size": 24, **changes})

    return study_of


def test_each_trial_and_step_has_masks_of_its_own(made) -> None:
    of = made("Dropped")
    one, two = trials(of, 2)
    assert len({key_of(trial.seed, step) for trial in (one, two) for step in range(50)}) == 100
    alone, plain = engine("module", of, (one,)), engine("module", made("Dropped"), (one,))
    assert isinstance(plain, ModuleEngine)
    for run in plain.runs:
        run.model.eval()  # no mask at all
    alone.advance(3)
    plain.advance(3)
    assert largest_difference(alone.weights(0), plain.weights(0)) > 1e-3


@pytest.mark.parametrize(("name", "what"), [("Recurrent", "torch.lstm"), ("Odd", "torch.randperm")])
def test_what_cannot_follow_the_example_is_refused_where_a_batch_is_divided(
    made, name: str, what: str
) -> None:
    divided = made(name, micro_batch=5)
    with pytest.raises(WorkloadError, match=rf"draws random numbers .*{what}.*batch size 24"):
        engine("module", divided, trials(divided, 1))
    whole = made(name)
    with pytest.raises(ExperimentError, match=rf"cannot be stacked: .*{what}"):
        engine("stacked", whole, trials(whole, 2))
    a, b = (engine("module", whole, trials(whole, 2)) for _ in range(2))
    before = torch.get_rng_state()
    a.advance(10)
    assert torch.equal(before, torch.get_rng_state())
    b.advance(4)
    torch.rand(3)  # the global generator has no say
    b.advance(6)
    for row in range(2):
        assert all(torch.equal(v, b.weights(row)[n]) for n, v in a.weights(row).items())


def test_a_study_of_a_model_that_draws_is_stacked_by_itself(made) -> None:
    of = made("Dropped", precision="float32", budget_steps=20)
    assert Training(Pack(id="p", study=of, trials=trials(of, 4))).engine == "stacked"


def test_what_a_model_draws_is_told_apart_from_its_other_dimensions(made) -> None:
    of = made("Everything")
    context = StudyContext.load(of)
    model = context.model(trials(of, 1)[0])
    before = torch.get_rng_state()
    draws = RandomDraws.of(context, model).draws
    assert torch.equal(before, torch.get_rng_state())
    assert Draw((2, 2, 5, 5), 2, 0, 1) in draws  # attention weights of two heads
    assert Draw((4, 5, 5), 2, 0, 2) in draws  # the same, the heads folded into the batch
    assert Draw((5, 2, 16), 2, 1, 1) in draws  # the batch comes second
    assert Draw((8,), 2, None, 1) in draws  # shared by all examples
    plain = StudyContext.load(study())
    assert not RandomDraws.of(plain, plain.model(trials(study(), 1)[0]))


def _splitmix(word: int) -> int:
    """Steele, Lea & Flood 2014, in Python's own integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def _drawing(shape: tuple[int, ...], key: int = 12345, start: int = 0) -> ExampleRandomness:
    draws = RandomDraws(draws=(Draw(shape, shape[0], 0, 1),))
    return ExampleRandomness(draws, torch.tensor(key), shape[0], start)


def test_the_hash_is_splitmix() -> None:
    hashes = _drawing((5, 3), start=7).hashes((5, 3), torch.device("cpu"))
    for row in range(5):
        for column in range(3):
            place = (7 + row) * 3 + column
            word = (12345 + 0xD1342543DE82EF95 + place * 0x9E3779B97F4A7C15) % 2**64
            assert int(hashes[row, column]) % 2**64 == _splitmix(word)


def test_numbers_have_the_distributions_they_are_called_by() -> None:
    shape = (2000, 200)
    count = math.prod(shape)
    like = torch.empty(shape, dtype=torch.float64)
    with _drawing(shape):
        uniform = torch.rand_like(like)
        normal = torch.randn(shape, dtype=torch.float64)
        exponential = like.new_empty(shape).exponential_(2.0)
        kept = F.dropout(torch.ones(shape), 0.3)
        alpha = F.alpha_dropout(normal, 0.2, training=True)
    cells = torch.histc(uniform, 100, 0, 1)
    assert float(((cells - count / 100) ** 2 / (count / 100)).sum()) < 149  # χ², 99 d.f., 0.1 %
    for sample, mean, variance in (
        (uniform, 0.5, 1 / 12), (normal, 0, 1), (exponential, 0.5, 0.25), (alpha, 0, 1),
        (kept, 1, 0.3 / 0.7),
    ):  # fmt: skip
        error = math.sqrt(variance / count)
        assert abs(float(sample.mean()) - mean) < 4 * error
        assert float(sample.var()) == pytest.approx(variance, rel=0.02)
    quantiles = torch.tensor([0.0013499, 0.0227501, 0.1586553], dtype=torch.float64)
    for at, share in zip((-3, -2, -1), quantiles, strict=True):
        assert float((normal < at).double().mean()) == pytest.approx(float(share), rel=0.1)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    # Neighbours in either direction, and the two draws, know nothing of each other.
    for a, b in ((uniform[1:], uniform[:-1]), (uniform[:, 1:], uniform[:, :-1]), (uniform, normal)):
        both = torch.stack([a.flatten(), b.flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / math.sqrt(both.shape[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_those_of_64_rounded(dtype: torch.dtype) -> None:
    """What an autocast forward pass draws: no type of 16 bits holds the 24 bits of a number."""

    def drawn(dtype: torch.dtype) -> dict[str, torch.Tensor]:
        like, p = torch.empty(500, 20, dtype=dtype), 0.7
        with _drawing((500, 20)):
            return {
                "rand": torch.rand_like(like),
                "uniform_": like.clone().uniform_(-1, 3),
                "randn": torch.randn(500, 20, dtype=dtype),
                "normal_": like.clone().normal_(1, 2),
                "exponential_": like.clone().exponential_(),
                "bernoulli_": like.clone().bernoulli_(p),
                "bernoulli": torch.bernoulli(torch.full_like(like, 0.5)),
            }

    expected = drawn(torch.float64)
    for name, values in drawn(dtype).items():
        assert values.dtype == dtype
        tolerance = 0 if name.startswith("bernoulli") else torch.finfo(dtype).eps
        assert torch.allclose(values.double(), expected[name], tolerance, tolerance), name
        assert name != "rand" or float(values.max()) < 1


def test_an_exponential_number_has_a_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one of 2^24 whose bits are all 0."""
    monkeypatch.setattr(ExampleRandomness, "hashes", lambda _, s, d: torch.zeros(s).long().to(d))
    with _drawing((5, 3)):
        assert F.gumbel_softmax(torch.zeros(5, 3)).isfinite().all()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_extreme_rates_are_torchs(p: float) -> None:
    x = torch.randn(4, 3)
    with _drawing((4, 3)):
        assert torch.equal(F.dropout(x, p), F.dropout(x, p, training=True))
    assert torch.equal(F.dropout(x, p), x if p == 0 else torch.zeros_like(x))
    with _drawing((4, 3)), pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, 1.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, "bool", "float"])
def test_attention_without_a_loss_is_torchs(causal: bool, masked: str | None) -> None:
    """With a rate so small that nothing is dropped, and with none at all."""
    query, key, value = (torch.randn(2, 4, n, 8, dtype=torch.float64) for n in (5, 5, 5))
    mask = None if masked is None else torch.ones(5, 5, dtype=torch.bool).tril(1)
    if masked == "float":
        mask = torch.randn(5, 5, dtype=torch.float64)
    if masked and causal:
        mask, causal = None, True
    expected = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
    with _drawing((2, 4, 5, 5)):
        for p in (0.0, 1e-9):
            ours = F.scaled_dot_product_attention(
                query, key, value, mask, dropout_p=p, is_causal=causal
            )
            assert torch.allclose(ours, expected, atol=1e-12)
        grouped = F.scaled_dot_product_attention(
            query, key[:, :2], value[:, :2], dropout_p=1e-9, enable_gqa=True
        )
    keys, values = (each[:, :2].repeat_interleave(2, 1) for each in (key, value))
    assert torch.allclose(grouped, F.scaled_dot_product_attention(query, keys, values), atol=1e-12)
