"""What an error prints: one line and a hint, or the user's own frames, once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from batchscale.output.errors import CommandError, report, user_frames
from experiments.execution.failures import is_users
from results.errors import ResultsError


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def user_code(folder: Path, body: str) -> Callable[[], object]:
    """A function of a file that is the user's."""
    file = folder / "mine.py"
    file.write_text(f"def go():\n    {body}\n")
    scope: dict[str, Callable[[], object]] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    return scope["go"]


@pytest.mark.parametrize("kind", [CommandError, ResultsError])
def test_a_clear_error_is_one_line_and_a_hint(
    kind: type[CommandError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("no batch size 0 in sweep.yaml:3", hint="start at 1")
    assert report(error) == 1
    held = capsys.readouterr()
    assert held.err == "error: no batch size 0 in sweep.yaml:3\nhint: start at 1\n"
    assert not held.out


def test_frames_above_the_users_first_are_left_out(tmp_path: Path) -> None:
    """Here the test's own frames stand for ours: a worker's, the engine's, the driver's."""
    error = caught(user_code(tmp_path, "raise ValueError('wrong')"))
    inner = error.__traceback__
    while inner is not None and inner.tb_next is not None:
        inner = inner.tb_next
    shown = user_frames(error.with_traceback(inner))
    assert shown is not None
    assert "test_errors.py" not in shown.replace(str(tmp_path), "")
    assert shown.splitlines()[0] == "Traceback (most recent call last):"
    assert shown.splitlines()[-1] == "ValueError: wrong"


def test_an_error_of_ours_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    error = ZeroDivisionError("division by zero")  # it was never in a user's frame
    assert report(error) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: ZeroDivisionError: division by zero\nhint: ")
    assert "--debug" in shown


def test_a_full_disk_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(OSError(errno.ENOSPC, "No space left on device", "runs/trials")) == 1
    assert capsys.readouterr().err == "error: No space left on device: runs/trials\n"


def test_an_interrupt_is_130_and_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(KeyboardInterrupt()) == 130
    assert not capsys.readouterr().err


def test_a_librarys_compiled_code_is_not_the_users() -> None:
    assert not is_users("pandas/_libs/hashtable_class_helper.pxi")
    assert is_users("my_model.py")
