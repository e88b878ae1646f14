"""Generated data: their bits, their statistics, and the optima that are known of them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from tests.marks import quick
from tests.problems import tensors
from workloads import WorkloadError, load
from workloads.generated.counters import fields_of, key_of, random_bits
from workloads.generated.markov import Language, Markov, MarkovData
from workloads.generated.split import GeneratedSplit
from workloads.generated.teacher import Teacher, TeacherData, teacher


def test_bits_are_a_function_of_key_and_index() -> None:
    key = key_of("a", 1)
    assert key != key_of("a1")
    indices = torch.tensor([0, 5, 2**61, 7])
    bits = random_bits(key, indices, 3)
    assert bits.shape == (4, 3)
    assert torch.equal(random_bits(key, indices[[2, 0]], 2), bits[[2, 0], :2])
    assert (
        len(torch.cat([bits.flatten(), random_bits(key_of("b"), indices, 3).flatten()]).unique())
        == 24
    )
    # Written down once: other bits would be other data.
    assert random_bits(key_of("teacher", 0, "train"), torch.tensor([1]), 1).item() == PINNED


PINNED = 3285876428077432650


def test_bits_are_uniform_and_independent() -> None:
    fields = fields_of(random_bits(key_of("test"), torch.arange(4096), 4), 16)
    assert fields.shape == (4096, 16)
    assert 0 <= int(fields.min()) < int(fields.max()) < 2**16
    unit = fields.double() / 2**16
    assert float((unit.mean(0) - 0.5).abs().max()) < 5 / math.sqrt(12 * 4096)
    correlations = torch.corrcoef(unit.T) - torch.eye(16)
    assert float(correlations.abs().max()) < 5 / math.sqrt(4096)
    neighbours = torch.corrcoef(torch.stack([unit[:-1, 0], unit[1:, 0]]))[0, 1]
    assert abs(float(neighbours)) < 5 / math.sqrt(4096)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param({"inputs": 1024, "teacher_width": 256, "noise": 3.0}, marks=pytest.mark.slow),
    ],
)
def test_the_teachers_data_have_the_stated_moments(fields: dict[str, Any]) -> None:
    workload = load("teacher", fields)
    assert isinstance(workload, Teacher)
    x, y, t = tensors(workload.data()["validation"])
    assert x.shape == (4096, workload.inputs)
    deviation = 1 / math.sqrt(4096)
    assert abs(float(x.mean())) < 5 * deviation / math.sqrt(workload.inputs)
    assert float(x.var()) == pytest.approx(1, abs=5 * deviation / math.sqrt(workload.inputs))
    assert abs(float(t.mean())) < 0.1
    assert float(t.var()) == pytest.approx(1, abs=0.1)
    noise = (y - t).double() / workload.noise
    assert abs(float(noise.mean())) < 5 * deviation
    assert float((noise**2).mean()) == pytest.approx(1, abs=5 * deviation)
    assert float((noise**4).mean()) == pytest.approx(
        2.7, abs=0.2
    )  # of four uniform numbers: 3 - 1.2/4
    assert workload.irreducible_loss == workload.noise**2


@pytest.mark.parametrize(("inputs", "width"), quick([(1, 1), (16, 8), (1024, 256)], 1))
def test_the_teachers_sums_are_exact(inputs: int, width: int) -> None:
    """Any order of summation gives the same bits; a float32 product would not."""
    hidden, offsets, output, bias = teacher(inputs, width, 3)
    data = TeacherData(inputs, width, 0.5, 3, stream="train")
    x, _, t = (part[:64] for part in data.examples(torch.arange(64)))
    for seed in range(2):
        columns = torch.randperm(inputs, generator=torch.Generator().manual_seed(seed))
        units = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
        products = x.double()[:, None, columns] * hidden[units][:, columns]
        total = torch.zeros(64, width, dtype=torch.float64)
        for i in range(inputs):
            total = total + products[:, :, i]
        active = (total + offsets[units]).relu() * output[units]
        result = torch.zeros(64, dtype=torch.float64)
        for i in range(width):
            result = result + active[:, i]
        assert torch.equal((result + bias).float(), t)


@pytest.mark.slow
def test_a_student_trained_for_long_approaches_the_optimum() -> None:
    """The expected loss comes down to the irreducible one, and the loss on noisy labels too."""
    workload = load("teacher", {"inputs": 4, "teacher_width": 3, "width": 16, "noise": 0.5})
    assert isinstance(workload, Teacher)
    data = workload.data()
    train, validation = data["train"], tensors(data["validation"])
    assert isinstance(train, GeneratedSplit)
    torch.manual_seed(1)
    model = workload.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    steps, size = 1500, 128
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    losses = []
    for step in range(steps):
        batch = train.examples(torch.arange(step * size, (step + 1) * size))
        loss = workload.loss(workload.forward(model, batch), batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        metrics = workload.metrics(workload.forward(model, validation), validation)
    assert 0 <= float(metrics["excess_loss"].mean()) < 0.01
    assert float(metrics["squared_error"].mean()) == pytest.approx(0.25, abs=0.01)
    noisy = torch.tensor(losses[-200:])
    assert float(noisy.mean()) == pytest.approx(
        0.25, abs=5 * float(noisy.std()) / math.sqrt(200) + 0.01
    )


def chain() -> Language:
    """Two states, three tokens."""
    return Language(
        start=torch.tensor([0.75, 0.25], dtype=torch.float64),
        transition=torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64),
        emission=torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.125, 0.875]], dtype=torch.float64),
    )


def brute_force(language: Language, length: int, first: int | None = None) -> dict[Any, float]:
    """The probability of every sequence, by a sum over all paths of states."""
    states, tokens = (range(n) for n in language.emission.shape)
    start, move, emit = (
        p.tolist() for p in (language.start, language.transition, language.emission)
    )
    probabilities = {}
    for sequence in itertools.product(tokens, repeat=length):
        total = 0.0
        for path in itertools.product(states, repeat=length):
            if first is not None and path and path[0] != first:
                continue
            p = start[path[0]] if path else 1.0
            for i, (state, token) in enumerate(zip(path, sequence, strict=True)):
                p *= emit[state][token] * (move[state][path[i + 1]] if i + 1 < length else 1.0)
            total += p
        probabilities[sequence] = total
    return probabilities


def entropy(probabilities: dict[Any, float]) -> float:
    return -sum(p * math.log(p) for p in probabilities.values() if p > 0)


def test_entropies_are_those_of_brute_force() -> None:
    language = chain()
    for length in range(1, 6):
        assert language.block_entropy(length) == pytest.approx(
            entropy(brute_force(language, length)), abs=1e-12
        )
    lower, upper = language.conditional_entropy(5)
    assert upper == pytest.approx(
        entropy(brute_force(language, 5)) - entropy(brute_force(language, 4)), abs=1e-12
    )
    of_state = sum(
        entropy(brute_force(language, 5, first)) - entropy(brute_force(language, 4, first))
        for first in range(2)
    )
    assert lower == pytest.approx(of_state, abs=1e-12)


def test_the_entropy_rate_lies_between_bounds_that_close() -> None:
    language = chain()
    bounds = [language.conditional_entropy(length) for length in range(1, 9)]
    for (low, high), (lower, higher) in itertools.pairwise(bounds):
        assert low <= lower <= higher <= high
    low, high = language.entropy_rate()
    assert 0 < high - low < 1e-5
    assert bounds[-1][0] - 1e-12 <= low < high <= bounds[-1][1] + 1e-12
    # A chain whose tokens are its states: the rate has a closed form.
    visible = Language(language.start, language.transition, torch.eye(2, dtype=torch.float64))
    rate = float(
        -(language.start[:, None] * torch.xlogy(language.transition, language.transition)).sum()
    )
    assert visible.entropy_rate() == pytest.approx((rate, rate), abs=1e-12)


def test_predictions_are_those_of_brute_force() -> None:
    language = chain()
    windows = torch.tensor([[0, 1, 2, 2], [2, 2, 0, 1]])
    predicted = language.predictions(windows)
    assert predicted.shape == (2, 3, 3)
    for row, window in enumerate(windows.tolist()):
        for length in (1, 2, 3):
            past, longer = brute_force(language, length), brute_force(language, length + 1)
            for token in range(3):
                exact = longer[(*window[:length], token)] / past[tuple(window[:length])]
                assert float(predicted[row, length - 1, token]) == pytest.approx(exact, abs=1e-12)


def test_the_least_loss_of_the_windows() -> None:
    """By the definition: the mean entropy of the best predictions, of windows drawn and of all."""
    workload = load("markov", {"tokens": 3, "states": 3, "context": 5})
    assert isinstance(workload, Markov)
    language = workload.language
    every = torch.tensor(list(itertools.product(range(3), repeat=6)))
    best = language.predictions(every)
    probabilities = language.start.new_tensor(sequence_probabilities(language, 6))
    surprise = -best.gather(-1, every[:, 1:, None]).squeeze(-1).log().mean(1)
    assert float((probabilities * surprise).sum()) == pytest.approx(
        workload.irreducible_loss, abs=1e-9
    )
    batch = tensors(workload.data()["validation"])
    perfect = batch[1].log()
    metrics = workload.metrics(perfect, batch)
    assert float(metrics["excess_loss"].abs().max()) < 1e-6
    assert float(metrics["cross_entropy"].mean()) == pytest.approx(
        workload.irreducible_loss, abs=0.03
    )
    uniform = workload.metrics(torch.zeros_like(perfect), batch)
    assert float(uniform["excess_loss"].mean()) > 0.05
    assert workload.metrics(perfect, batch[:1])["excess_loss"].shape == (2048,)


def test_windows_follow_the_language() -> None:
    workload = Markov()
    language = workload.language
    windows = MarkovData(8, 4, 8, 2, stream="train").examples(torch.arange(60_000))[0]
    for start in (0, 6):  # the distribution of three tokens is the same anywhere in the window
        codes = windows[:, start] * 16 + windows[:, start + 1] * 4 + windows[:, start + 2]
        shares = torch.bincount(codes, minlength=64).double() / len(codes)
        exact = torch.tensor(list(sequence_probabilities(language, 3)))
        assert float(((shares - exact).abs() / (exact / len(codes)).sqrt()).max()) < 5
    assert language.start @ language.transition == pytest.approx(language.start, abs=1e-8)


def sequence_probabilities(language: Language, length: int) -> list[float]:
    """The probabilities of all sequences in their order, by matrix products."""
    result = []
    for sequence in itertools.product(range(language.emission.shape[1]), repeat=length):
        belief = language.start
        for token in sequence:
            belief = (belief * language.emission[:, token]) @ language.transition
        result.append(float(belief.sum()))
    return result


def test_a_language_too_large_to_enumerate_says_so() -> None:
    workload = load("markov", {"tokens": 64, "context": 8})
    assert isinstance(workload, Markov)
    with pytest.raises(WorkloadError, match="64\\^9 sequences are too many to enumerate"):
        _ = workload.irreducible_loss
    low, high = workload.language.entropy_rate()
    assert low < high
