"""Which slow tests `make test-ci` runs: the part of the day, and what changed files touch."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tests.slow_part import PARTS, changed_files, chosen, imported, part_of_day

ROOT = Path(__file__).parent.parent
FILES = [f"tests/{folder}/test_{n}.py" for folder in ("fit", "engines") for n in range(10)]
TESTS = [f"{file}::test_{name}[{n}]" for file in FILES for name in "abcde" for n in range(5)]


def of_file(file: str) -> set[str]:
    return {test for test in TESTS if test.startswith(f"{file}::")}


def nothing(_: str) -> set[str]:
    return set()


def test_the_parts_divide_the_tests_about_equally() -> None:
    parts = [chosen(TESTS, part, [], nothing) for part in range(PARTS)]
    assert set().union(*parts) == {*TESTS}
    assert sum(map(len, parts)) == len(TESTS)
    assert all(30 <= len(part) <= 70 for part in parts)


def test_a_part_does_not_depend_on_the_other_tests() -> None:
    """Nor on the process: the hash of a string of Python's does."""
    assert chosen(TESTS[100:], 2, [], nothing) == chosen(TESTS, 2, [], nothing) & {*TESTS[100:]}
    assert chosen(["tests/a.py::test_a"], 3, [], nothing) == {"tests/a.py::test_a"}


def test_ten_days_in_a_row_have_ten_parts() -> None:
    assert part_of_day(date(2026, 1, 1)) == 7
    assert {part_of_day(date(2026, 2, 26) + timedelta(days=n)) for n in range(10)} == {*range(10)}


def test_a_changed_file_of_tests_runs_whole() -> None:
    more = chosen(TESTS, 0, [FILES[3], "docs/index.md"], nothing)
    assert more == chosen(TESTS, 0, [], nothing) | of_file(FILES[3])


def test_a_changed_source_runs_what_imports_from_its_folder() -> None:
    imports = {FILES[4]: {"experiments/engines/probe", "experiments/engines"}}
    imports |= {FILES[5]: {"experiments/plan", "experiments"}}
    more = chosen(TESTS, 0, ["experiments/engines/stacked.py"], lambda f: imports.get(f, set()))
    assert more == chosen(TESTS, 0, [], nothing) | of_file(FILES[4])


def test_a_changed_helper_runs_what_imports_it() -> None:
    imports = {FILES[4]: {"tests/fakes", "tests"}, FILES[5]: {"tests/files", "tests"}}
    more = chosen(TESTS, 0, ["tests/fakes.py"], lambda f: imports.get(f, set()))
    assert more == chosen(TESTS, 0, [], nothing) | of_file(FILES[4])


def test_a_change_of_everything_adds_one_part_at_most_and_changed_tests_first() -> None:
    changed = ["experiments/plan.py", *FILES[:2]]
    more = chosen(TESTS, 1, changed, lambda _: {"experiments"}) - chosen(TESTS, 1, [], nothing)
    assert len(more) == len(TESTS) // PARTS
    assert more | chosen(TESTS, 1, [], nothing) > of_file(FILES[0]) | of_file(FILES[1])


def test_imports_are_modules_and_their_folders(tmp_path: Path) -> None:
    for name in ("pack/__init__.py", "pack/deep/__init__.py", "pack/deep/one.py", "pack/two.py"):
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).touch()
    cases = {
        "from pack.deep.one import function": {"pack/deep/one", "pack/deep"},
        "from pack.two import (\n    name,\n)": {"pack/two", "pack"},
        "def test():\n    from pack import deep": {"pack", "pack/deep"},
        "import pack.deep": {"pack/deep"},
        "import numpy as np\nfrom os import path": set(),
    }
    for text, folders in cases.items():
        tmp_path.joinpath("test_it.py").write_text(text)
        assert imported("test_it.py", tmp_path) == folders, text


def commit(root: Path, age: timedelta, **files: str) -> None:
    for name, text in files.items():
        root.joinpath(f"{name}.py").write_text(text)
    when = (datetime.now(UTC) - age).isoformat()
    who = {
        f"GIT_{role}_{part}": "a" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    for command in (["add", "."], ["commit", "--quiet", "--message", "x"]):
        environment = {**os.environ, **who, "GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when}
        subprocess.run(["git", "-C", str(root), *command], env=environment, check=True)


def test_changed_files_are_those_of_a_day(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    commit(tmp_path, timedelta(hours=1), new="1", same="1")
    assert sorted(changed_files(tmp_path)) == ["new.py", "same.py"]  # no older commit
    subprocess.run(["git", "-C", str(tmp_path), "update-ref", "-d", "HEAD"], check=True)
    commit(tmp_path, timedelta(days=3), old="1", new="1", same="1")
    commit(tmp_path, timedelta(days=2), old="2")
    commit(tmp_path, timedelta(hours=20), new="2")
    tmp_path.joinpath("same.py").write_text("not committed")
    assert sorted(changed_files(tmp_path)) == ["new.py", "same.py"]


def test_without_git_nothing_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_files(tmp_path) == []
    monkeypatch.setenv("PATH", "")
    assert changed_files(ROOT) == []


def collected(folder: Path, *options: str) -> set[str]:
    """What pytest would run of a folder of tests, with the plugin."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.slow_part"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(folder), *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_the_option_leaves_out_slow_tests_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n  slow: slow\n")
    lines = ["import pytest", "def test_quick(): pass", "@pytest.mark.slow"]
    lines += ["@pytest.mark.parametrize('n', range(20))", "def test_slow(n): pass"]
    tmp_path.joinpath("test_it.py").write_text("\n".join(lines))
    whole = collected(tmp_path)
    assert len(whole) == 21
    quick, slow = {"test_it.py::test_quick"}, {f"test_it.py::test_slow[{n}]" for n in range(20)}
    assert collected(tmp_path, "--slow-part=3") == quick | {
        test for test in slow if test in chosen(sorted(slow), 3, [], nothing)
    }
    assert collected(tmp_path, "--slow-part=today") < whole
