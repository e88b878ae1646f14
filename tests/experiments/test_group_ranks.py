"""Ranks of a worker group: who is the cause of a pack's end, and how the others take it."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from experiments.execution.ledger import Ledger
from experiments.execution.ray import demand
from experiments.execution.ray.mailbox import Mailbox
from experiments.execution.ray.ranks import process_group
from experiments.execution.ray.ranks.group import find_cause, killed
from experiments.execution.worker import run_pack
from experiments.parallel.ranks import SingleRank, UnconnectedRank
from experiments.plan import Layout
from experiments.scheduling.messages import Begun, Failure, Over
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_worker import QUICK, Line, assignment, results
from tests.problems import engine, study, trials


def failure(text: str, cause: Any = "raised") -> Failure:
    return Failure(message=text, hint=None, traceback=text, clear=False, cause=cause)


def ended(rank: int, cause: Any = None, end: Any = "failed") -> Over:
    why = failure(f"rank {rank} {cause}", cause) if cause else None
    return Over(pack="pack", end=end, failure=why)


def ends(*causes: tuple[int, str]) -> dict[int, Over]:
    return {rank: ended(rank, cause) for rank, cause in causes}


@pytest.mark.parametrize(
    ("causes", "dead", "message"),
    [
        ([(1, "raised"), (0, "lost")], {}, "rank 1 raised"),
        ([(0, "lost"), (1, "raised")], {}, "rank 1 raised"),
        ([(2, "raised"), (1, "raised"), (0, "lost")], {}, "rank 2 raised"),
        ([(0, "lost"), (1, "memory")], {}, "rank 1 memory"),
        ([(0, "raised")], {1: "died"}, None),
        ([(0, "lost")], {1: "died"}, None),
        ([], {0: "died", 1: "died"}, None),
        ([(0, "lost"), (1, "lost")], {}, None),
        ([(0, "hung"), (2, "lost")], {}, "rank 1 of 3 hung: the others waited 9 s"),
        ([(0, "hung")], {}, "ranks 1, 2 of 3 hung: the others waited 9 s for them"),
        ([(0, "lost")], {}, None),
    ],
)
def test_the_cause(causes: list[Any], dead: dict[int, str], message: str | None) -> None:
    ranks = [0, *dead, *(rank for rank, _ in causes)]
    size = 3 if message and "hung" in message else 1 + max(ranks)
    found = find_cause(size, ends(*causes), dead, 9.0)
    assert (found and found.message[: len(message or "")]) == message


def test_a_failure_names_the_rank_that_died() -> None:
    assert killed(1, 2, failure("it was killed"), 3).message == "rank 1 of 2: it was killed"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("[x/gloo/transport/tcp/pair.cc:547] Connection closed by peer"), "lost"),
        (RuntimeError("Application timeout caused pair closure"), "lost"),
        (
            RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for"),
            "hung",
        ),
        (dist.DistNetworkError("Connection was likely closed."), "lost"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("Connection closed by peer"), None),
        (SystemExit("enough"), None),
    ],
)
def test_what_an_exception_says_of_other_ranks(error: BaseException, kind: str | None) -> None:
    assert process_group.classify(error) == kind


def test_a_users_exception_about_a_lost_rank_is_no_cause() -> None:
    error = ValueError("my collective failed")
    error.__cause__ = dist.DistBackendError("NCCL error")
    assert process_group.classify(error) == "lost"


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's interfaces")
def test_the_interface_of_an_address() -> None:
    assert process_group.interface("127.0.0.1") == "lo"
    assert process_group.interface("192.0.2.1") is None  # of no machine (RFC 5737)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has one loopback address")
def test_the_store_listens_at_its_address_alone() -> None:
    store = process_group.open_store("127.0.0.1")
    process_group.reach_store("127.0.0.1", store.port).set("key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), timeout=5)


# A pack whose rank is lost


class LosesRank(FakeTraining):
    """Raises once trials have ended."""

    def run(self, *arguments: Any) -> Any:
        for events in super().run(*arguments):
            yield events
            if len(self.active) < len(self.pack.trials):
                raise RuntimeError("gloo/transport: Connection closed by peer")


class SoloGroup(SingleRank):
    """Rank 0 of a group whose other rank says nothing."""

    size = 2


def test_a_lost_rank_is_no_failure_of_the_pack(tmp_path: Path) -> None:
    line, given, group = Line(), assignment(12), SoloGroup()
    channel, ledger = replace(line.channel, cause=process_group.classify), Ledger(str(tmp_path))
    end = run_pack(given, ledger, channel, trainer=LosesRank, pace=QUICK, group=group)
    assert end.failure is not None
    assert (end.failure.cause, end.failure.trial) == ("lost", None)
    assert ledger.claims.all() == []
    first = results(tmp_path)
    assert 0 < len(first) < 12
    assert "error" not in {reason for reason, _, _ in first.values()}
    line = Line()
    rest = replace(given, wanted=given.wanted - set(first))  # as ``Mailbox.ask`` has it
    run_pack(rest, ledger, line.channel, trainer=FakeTraining, pace=QUICK)
    begun = line.messages[0]
    assert isinstance(begun, Begun)
    assert begun.step > 0  # from the snapshot
    assert results(tmp_path).keys() == given.wanted


def test_a_rank_does_not_record_what_another_may_have_caused(tmp_path: Path) -> None:
    how: Any = {"trainer": Raises, "pace": QUICK, "group": SoloGroup()}
    end = run_pack(assignment(1), Ledger(str(tmp_path)), Line().channel, **how)
    assert end.failure is not None
    assert end.failure.trial is None
    assert results(tmp_path) == {}


class Raises(FakeTraining):
    """Raises at its first step."""

    def run(self, *_: Any) -> Any:
        raise RuntimeError("gloo/transport: Connection closed by peer")


class LeftAtOnce(SingleRank):
    """Rank 0 of a group whose other rank has gone."""

    size = 2

    def agree(self, _: Any) -> Any:
        raise RuntimeError("Connection closed by peer")


def test_a_claim_of_which_the_others_do_not_hear_is_released(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    with pytest.raises(RuntimeError):
        run_pack(assignment(), ledger, Line().channel, group=LeftAtOnce(), trainer=FakeTraining)
    assert ledger.claims.all() == []


class CountsSnapshots(FakeTraining):
    """Its state lies on all ranks: each has to take part in a snapshot."""

    taken = 0

    def snapshot(self) -> bytes | None:
        type(self).taken += 1
        return super().snapshot()


class Replayed(UnconnectedRank):
    """A rank 1 that hears what rank 0 has said before."""

    def __init__(self, rank: int, said: list[Any]) -> None:
        super().__init__(rank, 2)
        self.said = said if rank == 0 else said.copy()

    def agree(self, value: Any) -> Any:
        if self.rank:
            return self.said.pop(0)
        self.said.append(value)
        return value


def test_all_ranks_take_part_in_a_snapshot_and_rank_0_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    taken: list[int] = []
    written: list[str] = []
    ledger = Ledger(str(tmp_path))
    monkeypatch.setattr(ledger, "save", lambda pack, _: written.append(pack))
    for rank in range(2):
        monkeypatch.setattr(CountsSnapshots, "taken", 0)
        group = Replayed(rank, said)
        run_pack(
            assignment(), ledger, Line().channel, group=group, trainer=CountsSnapshots, pace=QUICK
        )
        taken.append(CountsSnapshots.taken)
    assert group.said == []  # as many agreements on both
    assert taken[0] == taken[1] == len(written) > 0


def test_the_progress_of_a_pack() -> None:
    mailbox = Mailbox()
    assert mailbox.progress("pack") == (0, 0)
    mailbox.post(assignment(1).begun("module", 40))
    assert mailbox.progress("pack") == (0, 40)
    mailbox.post(assignment(1).ended((), "run"))
    assert mailbox.progress("pack") == (0, 40)


# Numbers that are not finite on one rank alone


class Summed(UnconnectedRank):
    """A rank whose sums have what the other rank gave to its own ones."""

    def __init__(self, rank: int, other: torch.Tensor | None = None) -> None:
        super().__init__(rank, 2)
        self.other, self.given = other, torch.zeros(0)

    def all_reduce_(self, tensor: torch.Tensor) -> torch.Tensor:
        self.given = tensor.clone()
        return tensor if self.other is None else tensor.add_(self.other)


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("what", ["weights", "losses"])
def test_what_diverges_on_rank_1_has_diverged_on_all(kind: str, what: str) -> None:
    of = study()
    tried = trials(of, 3)
    group = [Summed(rank) for rank in range(2)]
    engines = [engine(kind, of, tried, group=rank) for rank in group]
    broken: Any = engines[1]
    for each in engines:
        each.advance(2)
    if what == "losses":
        losses = broken.stack.losses[1:2] if kind == "stacked" else broken.runs[1].loss_sum
        losses.fill_(torch.inf)
    elif kind == "stacked":
        broken.stack.weights[1, 0] = torch.nan
    else:
        next(broken.runs[1].model.parameters()).data[0, 0] = torch.nan
    for each in engines:
        each.finite()
    group[0].other, group[1].other = group[1].given, group[0].given
    for each in engines:
        assert each.finite() == [True, False, True]


@pytest.mark.parametrize(
    ("layout", "bundles"),
    [
        (Layout(), [{"CPU": 1.0}]),
        (Layout(workers=2), [{}, {"CPU": 1.0}, {"CPU": 1.0}]),
        (Layout(workers=2, gpus_per_worker=1.0), [{}, *[{"CPU": 1.0, "GPU": 1.0}] * 2]),
    ],
)
def test_the_ranks_of_a_group_are_placed_together(
    layout: Layout, bundles: list[dict[str, float]]
) -> None:
    capacity = demand.Capacity(nodes=[{"CPU": 4.0, "GPU": 4.0}])
    assert demand.bundles(layout, capacity.worker(layout)) == bundles
