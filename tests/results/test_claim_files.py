"""Claims that somebody else wrote: a malformed one is none, and what one names is left alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from results.errors import ResultsError
from results.run_state.claims import SILENT_SECONDS, Claims
from results.storage.location import Location
from tests.results.synthetic import claimed
from tests.results.test_claims import _age, _take


def written(**changes: Any) -> Any:
    """A claim as it is written, but for ``changes``; ``...`` leaves a key out."""
    content = {
        "pack": "p",
        "trials": ["a"],
        "token": "0",
        "holder": {"machine": "elsewhere", "pid": 7, "start": 5},
        "processes": [{"machine": "elsewhere", "pid": 8, "start": None, "role": "driver"}],
        "info": {"experiment": "e", "study": "s", "round": 0},
        "progress": {"a": [3, 0.5]},
        "time": 1e9,
        **changes,
    }
    return {key: value for key, value in content.items() if value is not ...}


MALFORMED: list[dict[str, Any]] = [
    *({key: ...} for key in written()),
    *({key: None} for key in written()),
    *({key: 7} for key in written() if key != "time"),
    {"pack": "q"},
    {"pack": "../../precious"},
    {"pack": "/etc/passwd"},
    {"trials": "abc"},
    {"trials": [1]},
    {"trials": {"a": 1}},
    {"holder": {}},
    {"holder": {"machine": "elsewhere", "pid": "7", "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 7.5, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": True, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 0, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": -1, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 10**30, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 7}},
    {"holder": {"machine": "elsewhere", "pid": 7, "start": "5"}},
    {"holder": {"machine": "elsewhere", "pid": 7, "start": float("nan")}},
    {"holder": {"machine": None, "pid": 7, "start": 5}},
    {"holder": {"machine": "\x1b[2J", "pid": 7, "start": 5}},
    {"holder": {"machine": "x" * 100_000, "pid": 7, "start": 5}},
    {"holder": [1, 2, 3]},
    {"processes": [None]},
    {"processes": [{"role": "driver"}]},
    {"processes": [{"machine": "elsewhere", "pid": 7, "start": 5, "role": 1}]},
    {"processes": {"machine": "elsewhere", "pid": 7, "start": 5}},
    {"info": []},
    {"info": {"study": ["s"]}},
    {"info": {"experiment": {"a": 1}}},
    {"info": {"more": [1]}},
    {"progress": []},
    {"progress": {"a": 3}},
    {"progress": {"a": [3]}},
    {"progress": {"a": [3, 0.5, 1]}},
    {"progress": {"a": ["3", 0.5]}},
    {"progress": {"a": [3, "0.5"]}},
    {"progress": {"a": [-3, 0.5]}},
    {"progress": {"a": [float("inf"), 0.5]}},
    {"time": "now"},
    {"time": float("nan")},
    {"time": float("inf")},
]
TEXTS = [
    b"",
    b"null",
    b"[]",
    b"7",
    b"NaN",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"pack": ' + b"9" * 50_000 + b"}",
    b"\0" * 1000,
]


@pytest.mark.parametrize("change", MALFORMED, ids=lambda change: repr(change)[:60])
def test_a_malformed_claim_is_no_claim(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "p.json").write_text(json.dumps(written()))
    assert [claim["pack"] for claim in Claims(tmp_path).all()] == ["p"]
    (folder / "p.json").write_text(json.dumps(written(**change)))
    _is_passed_over(tmp_path)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_a_file_that_is_no_json_is_no_claim(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "p.json").write_bytes(text)
    _is_passed_over(tmp_path)


def write_malformed(root: Path) -> None:
    """All of them at once."""
    (root / "claims").mkdir(exist_ok=True)
    for at, change in enumerate(MALFORMED):
        text = json.dumps(written(**{"pack": f"c{at}", **change}))
        (root / "claims" / f"c{at}.json").write_text(text)
    for at, data in enumerate(TEXTS):
        (root / "claims" / f"t{at}.json").write_bytes(data)


def _is_passed_over(root: Path) -> None:
    claims = Claims(root)
    other = claimed(root, "q", ("c",))
    assert [claim["pack"] for claim in claims.all()] == ["q"]
    claims.clear()
    assert (root / "claims" / "p.json").exists()
    other.release()
    assert _take(root) is not None  # taken in its place


def test_a_huge_file_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "claims").mkdir()
    with (tmp_path / "claims" / "p.json").open("wb") as stream:
        stream.truncate(2**40)
    monkeypatch.setattr(Location, "read", lambda *_: pytest.fail("read"))
    assert Claims(tmp_path).all() == []


def test_a_metric_that_is_no_number_is_none(tmp_path: Path) -> None:
    claim = claimed(tmp_path)
    values = {"a": (3, float("nan")), "b": (4, float("-inf")), "c": (5, None), "d": (6, 0.25)}
    assert claim.renew(values, force=True)
    (read,) = Claims(tmp_path).live()
    assert read["progress"] == {"a": [3, None], "b": [4, None], "c": [5, None], "d": [6, 0.25]}


def test_clearing_deletes_nothing_that_a_claim_names(tmp_path: Path) -> None:
    root = tmp_path / "inner" / "runs"
    (root / "claims" / "deep").mkdir(parents=True)
    precious = [tmp_path / "precious.json", root / "p.json", root / "claims" / "deep" / "x.json"]
    for path in precious:
        path.write_text("{}")
    past = time.time() - SILENT_SECONDS - 1
    for at, pack in enumerate(("../../../precious", "../p", "deep/x", str(tmp_path / "precious"))):
        path = root / "claims" / f"c{at}.json"
        path.write_text(json.dumps(written(pack=pack)))
        os.utime(path, (past, past))
    free = root / "claims" / "p.json"
    free.write_text(json.dumps(written()))
    os.utime(free, (past, past))
    Claims(root).clear()
    assert not free.exists()
    assert all(path.exists() for path in precious)


def test_a_pack_of_no_plain_name_is_refused(tmp_path: Path) -> None:
    for pack in ("../p", "a/b", "", ".p", "p\n"):
        with pytest.raises(ResultsError, match="cannot name a file"):
            _take(tmp_path, pack)
    assert not list(tmp_path.rglob("*.json"))


def test_a_claim_of_a_day_to_come_is_free(tmp_path: Path) -> None:
    assert _take(tmp_path)
    _age(tmp_path, "p", -86400)
    assert _take(tmp_path) is not None
