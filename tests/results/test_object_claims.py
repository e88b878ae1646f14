"""Claims in an object store: the same laws as in a folder, by conditional writes alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from obstore.store import MemoryStore

from results.errors import ResultsError
from results.run_state import claim_files
from results.run_state.claims import SILENT_SECONDS, Claims
from results.storage.location import Location
from results.storage.objects import ObjectStore, Version
from tests.results.synthetic import claimed


@pytest.fixture
def location(bucket: Location) -> Location:
    """Each process of a sweep opens the store by itself; here they share one in memory."""
    return bucket


def store_of(location: Location) -> ObjectStore:
    assert isinstance(location.store, ObjectStore)
    return location.store


def test_an_object_is_created_once_and_replaced_by_who_knows_it(location: Location) -> None:
    store = store_of(location)
    first = store.create("a/x", b"1")
    assert first is not None
    assert store.create("a/x", b"2") is None
    second = store.replace("a/x", b"3", first)
    assert second is not None
    assert store.replace("a/x", b"4", first) is None
    assert store.get("a/x") == (b"3", second)
    assert [each.name for each in store.list("a")] == ["a/x"]
    assert store.replace("a/none", b"5", first) is None
    assert store.read("a/none") is None
    assert store.head("a/none") is None
    store.delete("a/x")
    store.delete("a/x")
    assert store.list("a") == []


def test_a_write_that_is_repeated_since_its_answer_was_lost_meets_itself(
    location: Location,
) -> None:
    store = store_of(location)
    made = store.create("x", b"mine")
    assert made is not None
    assert store.create("x", b"mine") == made
    changed = store.replace("x", b"new", made)
    assert store.replace("x", b"new", made) == changed


def test_a_silent_claim_is_taken_and_its_holder_notices(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(location, "p", ["a"])
    later = time.time() + SILENT_SECONDS + 1
    monkeypatch.setattr(claim_files._Lease, "time", lambda _: later)
    successor = claimed(location, "p", ["a"])
    assert not claim.held()
    assert not claim.renew({}, force=True)
    assert not claim.renew({}, force=True)
    claim.release()
    assert successor.held()


def test_of_many_who_reach_for_one_pack_one_gets_it(location: Location) -> None:
    taken: list[str] = []
    start = threading.Barrier(8)

    def take(name: str) -> None:
        claims = Claims(location)
        start.wait()
        if claims.take(f"p{name}", ["a", name]) is not None:
            taken.append(name)

    threads = [threading.Thread(target=take, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1


def test_the_lock_of_a_dead_process_is_taken(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_files, "LEASE_SECONDS", 0.2)
    store = store_of(location)
    store.create(claim_files.LOCK, b"of a process that has ended")
    assert Claims(location).take("p", ["a"]) is not None
    assert store.read(claim_files.LOCK) is None


@pytest.mark.slow
def test_a_lock_is_kept_while_it_is_renewed(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_files, "LEASE_SECONDS", 0.4)
    order: list[str] = []

    def wait_for_it() -> None:
        with Claims(location).locked() as lock:
            order.append("second")
            assert lock.held()

    with Claims(location).locked() as lock:
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        time.sleep(1.5)
        order.append("first")
        assert lock.held()
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("act", ["take", "extend"])
def test_what_is_done_under_a_lost_lock_does_not_count(
    location: Location, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """A process that slept between its reading of the claims and its writing."""
    claims = Claims(location)
    before = claims.take("p", ["a"]) if act == "extend" else None
    store = store_of(location)
    every: Callable[[Claims], object] = Claims.all

    def slow(of: Claims) -> object:
        answer = every(of)
        if of is claims:
            store.write(claim_files.LOCK, b"of another process, after the lease")
        return answer

    monkeypatch.setattr(Claims, "all", slow)
    if act == "take":
        assert claims.take("p", ["a"]) is None
    else:
        assert before is not None
        assert not before.extend(["b"])
    monkeypatch.setattr(Claims, "all", every)
    assert [c["trials"] for c in Claims(location).all()] == ([] if act == "take" else [["a"]])


def test_a_claim_that_has_not_changed_is_not_read_again(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(location, "p", ["a"])
    reads: list[str] = []
    read = ObjectStore.read

    def counted(store: ObjectStore, name: str) -> bytes | None:
        reads.append(name)
        return read(store, name)

    monkeypatch.setattr(ObjectStore, "read", counted)
    claims = Claims(location)
    first = claims.all()
    second = claims.all()
    assert [c["trials"] for c in (*first, *second)] == [["a"], ["a"]]
    assert reads == ["claims/p.json"]
    claim.renew({"a": (1, 0.1)}, force=True)
    assert claims.all()[0]["progress"] == {"a": [1, 0.1]}


class _SlowAnswers(ObjectStore):
    """A store whose answer to a replacement is on its way until ``answered``."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.written, self.answered = threading.Event(), threading.Event()

    def replace(self, name: str, data: bytes, version: Version) -> Version | None:
        replaced = super().replace(name, data, version)
        self.written.set()
        assert self.answered.wait(60)
        return replaced


def test_a_claim_is_held_while_its_renewal_is_on_its_way(location: Location) -> None:
    """What commits beside the thread that renews does not take the new version for another's."""
    store = vars(location)["store"] = _SlowAnswers()
    claim = claimed(location, "p", ["a"])
    renewing = threading.Thread(target=lambda: claim.renew({"a": (3, 0.5)}, force=True))
    renewing.start()
    assert store.written.wait(60)
    held: list[bool] = []
    committing = threading.Thread(target=lambda: held.append(claim.held()))
    committing.start()
    committing.join(0.2)
    assert held == []
    store.answered.set()
    committing.join(60)
    renewing.join(60)
    assert held == [True]
    claim.release()
    assert Claims(location).all() == []


class _Careless(ObjectStore):
    """A store that ignores conditions, as some did."""

    def create(self, name: str, data: bytes) -> Version | None:
        return self.write(name, data)


def test_a_store_without_conditional_writes_is_refused(location: Location) -> None:
    vars(location)["store"] = _Careless(MemoryStore())
    with pytest.raises(ResultsError, match="ignores conditions of writes"):
        Claims(location).take("p", ["a"])
    assert Claims(location).all() == []
