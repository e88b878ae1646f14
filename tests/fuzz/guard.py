"""What odd input may lead to: it works, or a clear error says in one line what is wrong.

Cases run in a process of their own (``python -m tests.fuzz.files``), which ends itself with a
traceback when one takes too long, whatever it hangs in; the tests read what it prints.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from experiments.execution.failures import is_users
from results.errors import line
from tests.test_imports import ROOT

LIMIT = 60.0
"""Seconds a case may take; on two slow cores that others use too."""
_BYTES = 24 * 2**30
"""Of address space: a case that fills the memory ends its process, not the machine."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a case: ``error`` is None where it worked, ``wrong`` None where it may be so."""

    name: str
    error: str | None = None
    hint: str | None = None
    wrong: str | None = None


def outcome(name: str, case: Callable[[], object]) -> Outcome:
    """Run one case, and judge what it raises."""
    with _limited(name):
        try:
            case()
        except Exception as error:
            message, hint = str(error), getattr(error, "hint", None)
            return Outcome(name=name, error=message, hint=hint, wrong=_wrong(error, message, hint))
    return Outcome(name=name)


def said_well(message: str, hint: str | None) -> str | None:
    """What is wrong with a clear error's text: None where nothing is."""
    for text in (message, hint or ""):
        if text != line(text):
            return f"more than one clear line: {text[:300]!r}"
        if "Traceback" in text or " object at 0x" in text or "<class '" in text:
            return f"something internal: {text[:300]!r}"
    return None if message else "it says nothing"


def _wrong(error: Exception, message: str, hint: str | None) -> str | None:
    if hasattr(error, "hint"):
        return said_well(message, hint)
    if _in_users_file(error):  # whose traceback is shown
        return None
    return f"no clear error: {''.join(traceback.format_exception(error))}"


def _in_users_file(error: Exception) -> bool:
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    ours = str(ROOT / "tests")
    return any(is_users(file) and not file.startswith(ours) for file in files)


@contextmanager
def _limited(name: str) -> Iterator[None]:
    print(json.dumps({"began": name}), flush=True)
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def report(outcomes: Iterable[Outcome]) -> None:
    """In the process of the cases: print what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    for each in outcomes:
        print(json.dumps(asdict(each)), flush=True)


def run(module: str, *arguments: object) -> dict[str, Outcome]:
    """In the test: what came of the cases of ``python -m module arguments``, by name.

    Raises:
        AssertionError: the process ended before its last case; it names the case.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:Glyph", "-m", module, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    lines = [json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")]
    began = [each["began"] for each in lines if "began" in each]
    assert done.returncode == 0, f"{began[-1:]}: {done.stderr[-3000:]}"
    return {each["name"]: Outcome(**each) for each in lines if "name" in each}
