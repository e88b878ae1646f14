"""States are whole: what one layout has written another one reads, and no rank has another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.encoding import decode, encode
from experiments.engines.module import ModuleEngine
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Study
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.experiments.test_layouts_gates import (
    FOUR,
    SHARD,
    TENSOR,
    TWO,
    Dimensions,
    of_text,
    of_user,
    user,
)
from tests.problems import largest_difference, trials

__all__ = ["user"]
PLAIN = "one worker"
STEPS = 2


def engine_of(ranks: Ranks, of: Study, dimensions: Dimensions) -> ModuleEngine:
    layout = replace(of.layout, workers=ranks.size, dimensions=dimensions)
    return ModuleEngine(StudyContext.load(replace(of, layout=layout), ranks=ranks), trials(of, 1))


def written(ranks: Ranks, of: Study, dimensions: Dimensions) -> bytes:
    """The state after some steps, as snapshots have it."""
    engine = engine_of(ranks, of, dimensions)
    engine.advance(STEPS)
    return encode(engine.state())


def read(ranks: Ranks, of: Study, dimensions: Dimensions, state: bytes) -> Any:
    """What training on from a state gives: weights and metrics."""
    engine = engine_of(ranks, of, dimensions)
    engine.load(decode(state))
    engine.advance(STEPS)
    return engine.weights(0), engine.evaluate("validation")[0]


def written_again(
    ranks: Ranks, of: Study, dimensions: Dimensions, states: list[bytes]
) -> list[bytes]:
    """Each of the states as it is written after it was read, the first by a new engine."""
    engine = engine_of(ranks, of, dimensions)
    again = []
    for state in states:
        engine.load(decode(state))
        again.append(encode(engine.state()))
    return again


def assert_alike(state: Any, plain: Any, bound: float, place: str = "") -> None:
    """Two states have the same form everywhere, and nearly the same numbers."""
    assert type(state) is type(plain), place
    if isinstance(plain, dict):
        assert list(state) == list(plain), place
        for key in plain:
            assert_alike(state[key], plain[key], bound, f"{place}.{key}")
    elif isinstance(plain, list | tuple):
        assert len(state) == len(plain), place
        for i, (each, other) in enumerate(zip(state, plain, strict=True)):
            assert_alike(each, other, bound, f"{place}.{i}")
    elif isinstance(plain, torch.Tensor):
        assert (state.shape, state.dtype) == (plain.shape, plain.dtype), place
        torch.testing.assert_close(state, plain, rtol=bound, atol=bound, msg=place)
    elif isinstance(plain, float):
        assert state == pytest.approx(plain, rel=bound), place
    else:
        assert state == plain, place


def assert_continues(results: list[Any], plain: Any, bound: float, place: str) -> None:
    for weights, metrics in results:
        assert largest_difference(weights, plain[0]) < bound, place
        assert metrics == pytest.approx(plain[1], rel=bound), place


@pytest.mark.slow
def test_shards_continue_from_what_tensor_ranks_wrote(user: str, tmp_path: Path) -> None:
    """A quick part of the test below."""
    of = of_user(user, "Cut", optimizer="muon")
    states = on_ranks(2, written, [(of, TENSOR)], tmp_path / "written")
    assert states[0] == states[1]
    results = on_ranks(2, read, [(of, SHARD, states[0][0])], tmp_path / "read")
    plain = read(SOLO, of, (), written(SOLO, of, ()))
    assert_continues([rank[0] for rank in results], plain, 1e-9, "tensor to shard")


@pytest.mark.slow
def test_every_layout_reads_the_states_of_all_others(user: str, tmp_path: Path) -> None:
    technique = {"ema": 0.5, "clip": 1.0}
    studies = {
        "text": of_text(optimizer="muon", technique=technique, batch_size=8, micro_batch=3),
        "adamw": of_user(user, "Cut", optimizer="adamw", technique=technique),
        "average": of_user(user, "Cut", optimizer="schedule-free-adamw"),
    }
    layouts = {2: dict(TWO), 4: dict(FOUR)}
    cases = {
        size: [
            (study, name)
            for study in studies
            for name in layouts[size]
            if studies[study].workload.spec == "lm-transformer" or "sequence" not in name
        ]
        for size in layouts
    }
    states = {(study, 1, PLAIN): written(SOLO, of, ()) for study, of in studies.items()}
    for size, each in cases.items():
        jobs = [(studies[study], layouts[size][name]) for study, name in each]
        ranks = on_ranks(size, written, jobs, tmp_path / f"written{size}")
        for number, (study, name) in enumerate(each):
            assert all(rank[number] == ranks[0][number] for rank in ranks), (study, size, name)
            states[study, size, name] = ranks[0][number]
            plain = decode(states[study, 1, PLAIN])
            assert_alike(decode(ranks[0][number]), plain, 1e-8, f"{study} {size} {name}: ")
    expected = {study: read(SOLO, of, (), states[study, 1, PLAIN]) for study, of in studies.items()}
    for (study, size, name), state in states.items():
        result = read(SOLO, studies[study], (), state)
        assert_continues([result], expected[study], 1e-8, f"{study}: {size} {name} to one worker")
    for size, each in cases.items():
        others = [
            [of for of in states if of[0] == study and of[1:] != (size, name)]
            for study, name in each
        ]
        layout_of = [(studies[study], layouts[size][name]) for study, name in each]
        reads = [
            (*of, [states[writer] for writer in writers])
            for of, writers in zip(layout_of, others, strict=True)
        ]
        ranks = on_ranks(size, written_again, reads, tmp_path / f"read{size}")
        for number, writers in enumerate(others):
            for i, writer in enumerate(writers):
                place = f"{writer} to {size} {each[number][1]}"
                assert all(rank[number][i] == states[writer] for rank in ranks), place
        # What is trained on depends on the state alone: from one worker's, and from one other's.
        chosen = [
            (writers[0], writers[1 + i % (len(writers) - 1)]) for i, writers in enumerate(others)
        ]
        pairs = [(i, writer) for i, writers in enumerate(chosen) for writer in writers]
        trained = [(*layout_of[i], states[writer]) for i, writer in pairs]
        ranks = on_ranks(size, read, trained, tmp_path / f"trained{size}")
        for number, (i, writer) in enumerate(pairs):
            place = f"{writer} to {size} {each[i][1]}"
            assert_continues([rank[number] for rank in ranks], expected[each[i][0]], 1e-8, place)
