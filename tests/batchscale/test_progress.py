"""How far a long command is."""

from __future__ import annotations

import pytest

from analysis.progress import each, telling
from batchscale.output import progress as module
from batchscale.output.progress import Told, told


def test_each_tells_what_is_done_after_it_is() -> None:
    heard: list[str] = []
    with telling(heard.append):
        gone = [(one, list(heard)) for one in each("abc", "letters read")]
    assert gone == [("a", []), ("b", heard[:1]), ("c", heard[:2])]
    assert heard == ["1 of 3 letters read", "2 of 3 letters read", "3 of 3 letters read"]
    assert list(each("ab", "letters read")) == ["a", "b"]
    assert len(heard) == 3  # nobody listens outside


def test_a_line_comes_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    tell = Told("{:,} done".format)
    for second in range(26):
        now[0] = float(second)
        tell(1000 * second)
    said = capsys.readouterr()
    assert said.err == "10,000 done\n20,000 done\n"
    assert said.out == ""


def test_the_analysis_within_is_heard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.0)

    @told()
    def command() -> list[int]:
        return list(each([1, 2], "curves fitted"))

    assert command() == [1, 2]
    assert capsys.readouterr().err == "1 of 2 curves fitted\n2 of 2 curves fitted\n"
