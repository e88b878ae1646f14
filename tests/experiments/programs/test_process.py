"""A program that runs, by small real ones: what is read of it, how it ends, and that nothing is
left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from experiments.programs.guard import Lines
from experiments.programs.process import Process
from experiments.programs.reports import Followed, Report
from results.run_state import processes

LONG = 60.0


def reports_of(process: Process, until: Callable[[list[Report]], bool] = lambda _: False) -> list:
    """What it reports, to its end or until that is so."""
    seen: list[Report] = []
    end = time.monotonic() + LONG
    while process.ended is None and not until(seen):
        assert time.monotonic() < end, "the program hangs"
        seen += process.reports(0.2)
    return seen


@contextmanager
def started(folder: Path, code: str, **how: object) -> Iterator[Process]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with closing(Process(command, folder=folder, **how)) as process:  # type: ignore[arg-type]
        yield process


def pids(folder: Path) -> list[int]:
    """Numbers of processes that the programs here have written."""
    return [int(file.read_text()) for file in folder.glob("*.pid")]


def are_gone(folder: Path) -> bool:
    numbers = pids(folder)
    assert numbers
    end = time.monotonic() + LONG
    while any(processes.alive(processes.identify(n)) for n in numbers) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(processes.alive(processes.identify(n)) for n in numbers)


WRITE_PID = """
import os, signal, sys, time
def here(name):
    with open(os.path.join({folder!r}, name + ".tmp"), "w") as stream:
        stream.write(str(os.getpid()))
    os.replace(stream.name, stream.name[:-4] + ".pid")
"""


def written(folder: Path) -> str:
    return WRITE_PID.format(folder=str(folder))


def test_a_program_that_ends_is_read_to_its_end(tmp_path: Path) -> None:
    code = """
    import json, sys
    print("a word before")
    for step in (1, 2, 3):
        print(json.dumps({"step": step, "val/loss": 1 / step, "done": False, "name": "x"}))
    print("not {json}", file=sys.stderr)
    """
    with started(tmp_path, code) as process:
        seen = reports_of(process)
    assert [(r.step, dict(r.metrics)) for r in seen] == [
        (n, {"val_loss": 1 / n}) for n in (1, 2, 3)
    ]
    assert process.ended is not None
    assert (process.ended.exit, process.ended.signal) == (0, None)
    assert process.ended.stderr == ("not {json}",)
    assert (tmp_path / "stdout.log").read_text().startswith("a word before\n{")


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    with closing(Process(["no-such-program"], folder=tmp_path)) as process:
        reports_of(process)
    expected = "it could not be started: No such file or directory: no-such-program"
    assert str(process.ended) == expected


@pytest.mark.parametrize(
    ("on_term", "grace", "steps", "ended"),
    [
        ("lambda *_: (print('{\"step\": 9}'), sys.exit(4))", None, [1, 9], "exit status 4"),
        ("signal.SIG_IGN", 0.3, [1], "signal 9 (SIGKILL)"),
    ],
)
def test_a_program_is_ended_by_term_and_killed_after_the_grace(
    tmp_path: Path, on_term: str, grace: float | None, steps: list[int], ended: str
) -> None:
    rest = "here('program')\nprint('{\"step\": 1}')\ntime.sleep(1000)\n"
    code = f"{written(tmp_path)}signal.signal(signal.SIGTERM, {on_term})\n{rest}"
    with started(tmp_path, code) as process:
        seen = reports_of(process, bool)
        process.end(grace)
        seen += reports_of(process)
    assert [r.step for r in seen] == steps
    assert str(process.ended) == ended
    assert are_gone(tmp_path)


FAMILY = """
def child(name, rest, **how):
    import subprocess
    code = HEAD + f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\\nhere({name!r})\\n" + rest
    return subprocess.Popen([sys.executable, "-c", code], **how)
def wait_for(*names):
    while not all(os.path.exists(os.path.join(FOLDER, name + ".pid")) for name in names):
        time.sleep(0.01)
"""


def family(folder: Path) -> str:
    """A program with a child and a grandchild that ignore SIGTERM; the grandchild and a further
    child are in sessions of their own."""
    head = written(folder)
    names = f"HEAD, FOLDER = {head!r}, {str(folder)!r}\n"
    grandchild = "child('grandchild', 'time.sleep(1000)', start_new_session=True)\n"
    inner = names + FAMILY + grandchild + "time.sleep(1000)"
    daemon = "child('daemon', 'time.sleep(1000)', start_new_session=True)\n"
    rest = "wait_for('child', 'grandchild', 'daemon')\nhere('program')\nprint('{\"step\": 1}')\n"
    return f"{head}{names}{FAMILY}child('child', {inner!r})\n{daemon}{rest}"


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="such processes are not found there")


@LINUX
@pytest.mark.parametrize("how", ["ended", "closed", "by itself"])
def test_nothing_is_left_of_a_program(tmp_path: Path, how: str) -> None:
    """That is ended, or closed, or that ends before its children."""
    rest = "" if how == "by itself" else "time.sleep(1000)"
    with started(tmp_path, family(tmp_path) + rest) as process:
        reports_of(process, bool)
        if how == "ended":
            process.end(grace=0.3)
        if how != "closed":
            reports_of(process)
    assert str(process.ended).startswith("exit status 0" if how == "by itself" else "signal")
    assert len(pids(tmp_path)) == 4
    assert are_gone(tmp_path)


def worker(folder: Path) -> subprocess.Popen[str]:
    """A process that runs a program, once that reports."""
    source = f"""
    import sys
    from pathlib import Path
    from experiments.programs import process as module
    module.GRACE_SECONDS = 0.3
    process = module.Process([sys.executable, "-c", {family(folder) + "time.sleep(1000)"!r}],
                      folder=Path({str(folder)!r}))
    while not process.reports(1.0):
        pass
    print("runs", flush=True)
    while True:
        process.reports(1.0)
    """
    root = str(Path(__file__).parents[3])
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "runs\n"
    return run


@LINUX
def test_nothing_is_left_when_the_worker_is_killed(tmp_path: Path) -> None:
    with worker(tmp_path) as run:
        run.kill()
    assert are_gone(tmp_path)


@LINUX
def test_the_program_dies_with_its_guard(tmp_path: Path) -> None:
    code = written(tmp_path) + "here('program')\nprint('{\"step\": 1}')\ntime.sleep(1000)\n"
    with started(tmp_path, code) as process:
        reports_of(process, bool)
        process._guard.kill()
        reports_of(process)
    assert str(process.ended) == "signal 9 (SIGKILL)"
    assert are_gone(tmp_path)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = f"""
    import os, sys, time
    sys.stdout.write('{{"step": 1, "loss": 0.')
    sys.stdout.flush()
    sys.stderr.write("half")
    sys.stderr.flush()
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
    sys.stdout.write('25}}\\n{{"step": 2, "loss": 0.125}}\\n{{"step": 3, "lo')
    """
    with started(tmp_path, code) as process:
        end = time.monotonic() + LONG
        log = tmp_path / "stdout.log"
        while not (log.exists() and log.read_bytes()) and time.monotonic() < end:
            assert process.reports(0.05) == []
        assert process.reports(0.1) == []
        go.touch()
        seen = reports_of(process)
    assert [(r.step, r.metrics["loss"]) for r in seen] == [(1, 0.25), (2, 0.125)]
    assert process.ended is not None
    assert process.ended.stderr == ("half",)


def test_a_whole_last_line_needs_no_end(tmp_path: Path) -> None:
    with started(tmp_path, "print('{\"step\": 1}', end='')") as process:
        assert [r.step for r in reports_of(process)] == [1]


def test_output_of_megabytes_is_read_through_and_kept_in_part(tmp_path: Path) -> None:
    code = """
    import sys
    for i in range(30):
        sys.stdout.write("x" * 999_999 + "\\n")
        sys.stderr.write("y" * 999_999 + "\\n")
    print('{"step": 7}')
    sys.stdout.write("z" * 3_000_000)
    print('{"step": 8}')
    print('{"step": 9}')
    """
    with started(tmp_path, code) as process:
        seen = reports_of(process)
    assert [r.step for r in seen] == [7, 9]  # the line of step 8 begins with z
    for name in ("stdout.log", "stderr.log"):
        kept = [(tmp_path / name).stat().st_size, (tmp_path / f"{name}.1").stat().st_size]
        assert all(size <= 4 * 2**20 for size in kept)
    assert (tmp_path / "stdout.log").read_text().endswith('{"step": 9}\n')
    assert process.ended is not None
    assert all(len(line) <= 500 for line in process.ended.stderr)


def test_a_file_that_begins_again_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    followed = Followed(file)
    assert list(followed.more()) == []
    file.write_text("one\ntwo\nthr")
    assert list(followed.more()) == [b"one", b"two"]
    file.write_text("ONE\n")
    assert list(followed.more()) == [b"ONE"]
    file.write_text("ONE\nlast")
    assert list(followed.more(ended=True)) == [b"last"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b"step 3",
        b'{"loss": 1}',
        b'{"step": true}',
        b'{"step": 1.5}',
        b'{"step": -1}',
        b'{"step": NaN}',
        b'{"step": Infinity}',
        b'{"step": "3"}',
        b'{"step": 3, "loss": }',
        b'\xff{"step": 3}',
        b"{" * 100_000 + b"}",
    ],
)
def test_what_is_no_report(line: bytes) -> None:
    assert Report.of_line(line) is None


def test_lines_are_the_same_in_any_pieces() -> None:
    data = b"one\ntwo\n\n" + b"x" * 2_000_000 + b"\nlast"
    for size in (1, 50_000, 65_536):
        if size == 1:
            text, expected = b"a\n\nbc\nd", [b"a", b"", b"bc", b"d"]
        else:
            text, expected = data, [b"one", b"two", b"", b"last"]
        lines = Lines()
        got: list[bytes] = []
        for start in range(0, len(text), size):
            got += lines.of(text[start : start + size])
        assert [*got, *lines.last()] == expected
