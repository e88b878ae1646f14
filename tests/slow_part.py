"""The slow tests in ten parts: ``--slow-part`` runs one of them, and those that a change touches.

A hash of its name puts a test into a part, and a day has one part. Changed files of the last 24
hours touch the tests of a changed test file, and those whose file imports a changed helper of tests
or a module from a folder where a source changed. At most a tenth of all slow tests is added so,
those of changed test files first: a change of every folder takes no longer than two parts.
"""

from __future__ import annotations

import ast
import subprocess
import zlib
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

PARTS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"of the slow tests run one of {PARTS} parts, and what changed files touch"
    parser.addoption("--slow-part", choices=["today", *map(str, range(PARTS))], help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Before the processes of xdist copy the options: neither midnight nor a commit parts them."""
    option = config.option
    if option.slow_part == "today":
        option.slow_part = str(part_of_day(datetime.now(UTC).date()))
    if option.slow_part is not None and not hasattr(option, "slow_changed"):
        option.slow_changed = changed_files(config.rootpath)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.slow_part is None:
        return
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    part, changed = int(config.option.slow_part), config.option.slow_changed
    left_out = {*slow} - chosen(slow, part, changed, lambda file: imported(file, config.rootpath))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def part_of_day(day: date) -> int:
    return day.toordinal() % PARTS


def chosen(
    tests: Collection[str],
    part: int,
    changed: Collection[str],
    imports: Callable[[str], Collection[str]],
) -> set[str]:
    """Those of the slow ``tests``, by node id, that run.

    Args:
        changed: paths of files, from the root.
        imports: by a test's file, what ``imported`` says of it.
    """
    file_of = {test: test.partition("::")[0] for test in tests}
    named = _named(changed)
    touched = {f for f in {*file_of.values()} if f in changed or (named and named & {*imports(f)})}
    hashes = {test: zlib.crc32(test.encode()) for test in tests}
    today = {test for test in tests if hashes[test] % PARTS == part}
    more = [test for test in tests if file_of[test] in touched and test not in today]
    more.sort(key=lambda test: (file_of[test] not in changed, hashes[test]))
    return today | {*more[: len(tests) // PARTS]}


def _named(changed: Iterable[str]) -> set[str]:
    """What an import of changed files names: a helper of tests itself, of a source its folder."""
    paths = [Path(file) for file in changed]
    named = {p.with_suffix("") if p.parts[0] == "tests" else p.parent for p in paths}
    return {path.as_posix() for path in named} - {"."}


def imported(file: str, root: Path) -> set[str]:
    """Paths of the modules that a file imports, without suffix, and of their folders."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((root / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = [Path(*name.split(".")) for name in names]
    folders = {path for path in paths if (root / path).is_dir()}
    modules = {path for path in paths if (root / path).with_suffix(".py").is_file()}
    return {path.as_posix() for path in folders | modules | {path.parent for path in modules}}


def changed_files(root: Path) -> list[str]:
    """Files that differ from the newest commit of the first-parent line older than 24 hours; all
    where there is none (a shallow clone), and none without git."""
    try:
        base = _git(root, "rev-list", "-1", "--first-parent", "--before=24 hours ago", "HEAD")
        return _git(root, "diff", "--name-only", *base) if base else _git(root, "ls-files")
    except (OSError, subprocess.CalledProcessError):
        return []


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
