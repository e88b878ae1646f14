"""Counts agree with their nouns: no message says "1 trials"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.counts import count, plural

ROOT = Path(__file__).parent.parent
PACKAGES = ("analysis", "batchscale", "experiments", "results", "workloads")
NOUNS = (
    "batch sizes|configurations|columns|curves|cores|CPUs|epochs|evaluations|examples|experiments|"
    "figures|files|goals|GPUs|inches|lines|looks|machines|measurements|metaparameters|models|"
    "optimizers|others|packs|panels|parameters|parts|points|processes|repeats|rounds|rows|runs|"
    "searches|seeds|sizes|sources|steps|studies|targets|trials|values|workers|workloads"
)
_QUALIFIED = r"(?:(?:distinct|feasible|more|other|tested) )*"
_AFTER = re.compile(rf" {_QUALIFIED}(?:{NOUNS})\b(?! the |/)")
_NOT_COUNTS = {"interval", "words", "short", "_words"}
"""Functions that write an estimate with its interval: "64 [48, 90] steps"."""

AT_LEAST_TWO = {
    "workloads/user_code/loading.py": "holds",  # a file of one workload is no error
    "workloads/checks.py": "have|for",  # unequal lengths; a batch of several examples
    "results/schema.py": "holds",  # values of a type
    "validation/": "",  # a page of fixed numbers
}
"""Where a number is never 1, by file: and the end of the text before it."""


@pytest.mark.parametrize(
    ("number", "noun", "verb", "said"),
    [
        (1, "trial", "", "1 trial"),
        (0, "trial", "", "0 trials"),
        (2304, "trial", "", "2,304 trials"),
        (1, "study", "were", "1 study was"),
        (2, "study", "were", "2 studies were"),
        (1, "batch size", "are", "1 batch size is"),
        (3, "feasible search", "have", "3 feasible searches have"),
        (1, "trial", "train", "1 trial trains"),
        (2, "day", "", "2 days"),
    ],
)
def test_a_count_agrees_with_its_noun(number: int, noun: str, verb: str, said: str) -> None:
    assert count(number, noun, verb) == said


def test_plurals() -> None:
    nouns = ("study", "search", "image", "process", "batch size", "box", "category")
    assert [plural(noun) for noun in nouns] == [
        "studies", "searches", "images", "processes", "batch sizes", "boxes", "categories",
    ]  # fmt: skip


def test_no_text_puts_a_plural_behind_a_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in plurals(path.read_text(), path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n" + "\n".join(found)


def plurals(code: str, name: str) -> Iterator[tuple[int, str]]:
    """Lines of the file ``name``, and the text behind a number there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for part in re.findall(r"\{[^{}.%]*\}([^{}]*)", node.value):
                if _AFTER.match(part) and "{" in node.value and not _is_code(node.value):
                    yield node.lineno, part
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for value, after in zip(node.values, [*node.values[1:], None], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
                continue
            if not isinstance(after, ast.Constant) or not _AFTER.match(str(after.value)):
                continue
            if not _is_whole(value) or _excepted(name, before):
                continue
            yield node.lineno, str(after.value)


def _is_code(text: str) -> bool:
    """Docstrings and YAML that show mappings."""
    return "\n" in text or "``" in text


def _is_whole(value: ast.expr) -> bool:
    """Whether what is put into a text may be a count: no decimals, no words of its own."""
    assert isinstance(value, ast.FormattedValue)
    spec = ast.unparse(value.format_spec) if value.format_spec else ""
    if re.search(r"[.%g]", spec.strip("f'\"")):
        return False
    call = value.value
    return not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in _NOT_COUNTS
    )


def _excepted(name: str, before: str) -> bool:
    return any(
        name.startswith(file) and re.search(rf"(?:{ends}) $" if ends else "", before)
        for file, ends in AT_LEAST_TWO.items()
    )


@pytest.mark.parametrize(
    ("code", "faulty"),
    [
        ('f"{n} trials left"', True),
        ('f"{n:,} feasible trials"', True),
        ('f"{done} of {n} studies"', True),
        ('"best of {} trials".format(n)', True),
        ('"takes {half:.1%} more steps".format(half=0.2)', False),
        ("f\"{count(n, 'trial')} left\"", False),
        ('f"{n:.1f} trials/s"', False),
        ('f"{number(rate)} steps/s"', False),  # a unit, which has no singular
        ('f"{interval(a, b, c)} steps"', False),
        ('f"{n} trial"', False),
    ],
)
def test_the_test_finds_them(code: str, faulty: bool) -> None:
    assert bool(list(plurals(code, "results/code.py"))) == faulty
