"""What hints, help texts, docstrings and docs name exists: options, commands, keys, attributes,
files."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import batchscale
from batchscale.cli.app import app
from experiments.config.compile import Experiment
from experiments.parallel import DIMENSIONS
from experiments.search.domains import DOMAINS
from experiments.techniques import TECHNIQUES
from results.extensions import KINDS
from results.targets.quantities import QUANTITIES

ROOT = Path(__file__).parent.parent
PACKAGES = ("analysis", "batchscale", "experiments", "results", "workloads")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

OTHERS = {
    "--array": "sbatch", "--cpus-per-task": "sbatch", "--gpus": "sbatch", "--time": "sbatch",
    "--wrap": "sbatch", "--follow": "logs", "--head": "ray", "--nodes": "sbatch",
    "--from-file": "kubectl", "--role-name": "aws", "--assume-role-policy-document": "aws",
    "--policy-name": "aws", "--policy-document": "aws", "--policy-arn": "aws",
    "--instance-profile-name": "aws", "--version": "ray",
    "--working-dir": "", "--group": "install", "--no-deps": "install", "--logdir": "tensorboard",
    "--renew": "docs/gallery.py", "--replicates": "validation", "--to": "", "--processes": "",
    "--project": "my_importer.py", "--slow-part": "pytest",
    "--batch": "", "--max": "", "--lr": "", "--resume": "resume:", "--out": "folder",
}  # fmt: skip
"""Options of other programs, each with what stands beside it."""
MODULES = {
    "analysis",
    "api",
    "branches",
    "exchange",
    "function",
    "integrations",
    "noise",
    "reporting",
    "run",
    "training",
    "upkeep",
    "mplstyle",
}
"""What follows ``batchscale.`` without being public: its own modules, and a file."""
KEYS = {
    *(*Experiment.model_fields, "batch_size", "extends", "optimizer", *DOMAINS),
    *("data", *DIMENSIONS.packaged, "micro_batches"),  # of a layout
    *TECHNIQUES.packaged,
    *QUANTITIES,  # of stop
    *(f.name for name in TECHNIQUES.packaged for f in fields(TECHNIQUES.get_class(name, None))),
}
PLAIN = {"as", "ax", "batch", "divisor", "first", "it", "learning", "one", "that", "those"}
"""Words of hints that follow a verb and are no names."""
HEADS = {
    "columns",
    "curves",
    "estimators",
    "figures",
    "known",
    "measured",
    "recorded",
    "settings",
    "usage",
}
"""What hints begin with, before a colon and a list."""


@cache
def commands() -> dict[str, set[str]]:
    """Each command with its options, those of all commands among them."""
    group: Any = typer.main.get_command(app)

    def options(command: Any) -> set[str]:
        return {text for each in command.params for text in (*each.opts, *each.secondary_opts)}

    every = options(group) | {"--help"}
    return {
        name: every | options(command) | of_kinds(name) for name, command in group.commands.items()
    }


def of_kinds(command: str) -> set[str]:
    """The options of every importer or exporter."""
    kinds = KINDS.get(command)
    if kinds is None:
        return set()
    return {each.flag for name in kinds.names() for each in kinds.get(name).parameters.values()}


@cache
def texts() -> list[tuple[str, str]]:
    """Every text of the source and every line of the pages, with its place."""
    found = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for page in PAGES:
        lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        found += [(f"{page.relative_to(ROOT)}:{number}", line) for number, line in lines]
    return found


@cache
def hints() -> list[tuple[str, str]]:
    """Every hint of an error with its place; ``{}`` where a value is put in."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", text)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.Assign)
        for text in _hints(node)
    ]


def _hints(node: ast.Call | ast.Assign) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield from (t for word in node.keywords if word.arg == "hint" for t in _of(word.value))
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        place = 2 if name in ("error", "fail") else 1 if name.endswith("Error") else None
        if place is not None and len(node.args) > place:
            yield from _of(node.args[place])
    if isinstance(node, ast.Assign) and "HINT" in getattr(node.targets[0], "id", ""):
        yield from (t for value in ast.walk(node.value) for t in _of(value))


def _of(node: ast.AST) -> Iterator[str]:
    """The texts that a hint may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.IfExp):
        yield from _of(node.body)
        yield from _of(node.orelse)


def options(text: str) -> Iterator[str]:
    """Options that no command has, or another one than is named."""
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
        known = {each for of in commands().values() for each in of}
        if option not in known and not (option in OTHERS and OTHERS[option] in text):
            yield option
    for command, rest in re.findall(r"batchscale ([a-z]+)\b([^`\n]*)", text):
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest):
            # What stands before `--` is another program's.
            if option not in commands().get(command, {option}) and option not in OTHERS:
                yield f"{command} {option}"


def attributes(text: str) -> Iterator[str]:
    """Names of the package that it does not have."""
    for name in re.findall(r"\b(?:batchscale|bs)\.([A-Za-z_]\w*)", text):
        if name not in MODULES and not hasattr(batchscale, name):
            yield f"batchscale.{name}"


def unknown_commands(text: str) -> Iterator[str]:
    """Commands, where a text is code, that there are not."""
    spans = re.findall(r"`+([^`]+)`+", text)
    spans += [text] if re.match(r"\s*batchscale [a-z]", text) else []
    for span in spans:
        for name in re.findall(r"^batchscale ([a-z_]+)", span.strip()):
            if name not in commands():
                yield f"batchscale {name}"


def keys(text: str) -> Iterator[str]:
    """Keys of an experiment file, as code or behind ``--set``, that it does not have."""
    for span in re.findall(r"`+([^`]+)`+", text):
        found = re.match(r"([a-z_]+):(?: [^=.]*)?$", span)
        if found and found[1] not in KEYS:
            yield found[1]
    for name in re.findall(r"--set (?:\w+=\S+ --set )*([a-z_]+)[.=]", text):
        if name not in KEYS:
            yield f"--set {name}"


@cache
def sources() -> list[str]:
    """The paths of all our modules, with a slash before the first part."""
    folders = (*PACKAGES, "benchmarks", "docs", "tests", "validation")
    return [f"/{path.relative_to(ROOT)}" for of in folders for path in (ROOT / of).rglob("*.py")]


def files(text: str) -> Iterator[str]:
    """Modules, by the end of a path in code, that there are not."""
    for name in re.findall(r"`([a-z_][a-z0-9_/]*/[a-z0-9_]+\.py)`", text):
        if not any(path.endswith(f"/{name}") for path in sources()):
            yield name


def named_keys(hint: str) -> Iterator[str]:
    """What a hint tells to set, to leave out or to raise, and is no key."""
    verbs = (
        r"\b(?:set|leave out|raise|lower) (?:fewer |more |the |a |an )?([a-z_]+)(?: or ([a-z_]+))?"
    )
    for pair in re.findall(verbs, hint):
        yield from (name for name in pair if name and name not in KEYS | PLAIN)
    for name in re.findall(r"(?:^|for example: |\b(?=[a-z]+_))([a-z_]+): ", hint):
        if name not in KEYS | HEADS:
            yield name
    for name in re.findall(r"\b(?:set|overrides=\[\") ?([a-z_]+)=", hint):
        if name not in KEYS:
            yield name


@pytest.mark.parametrize("find", [options, attributes, unknown_commands, keys, files])
def test_what_texts_name_exists(find: Callable[[str], Iterator[str]]) -> None:
    missing = [f"{place}: {name}" for place, text in texts() for name in find(text)]
    assert not missing, "\n" + "\n".join(missing)


def test_what_hints_tell_to_set_exists() -> None:
    assert len(hints()) > 150
    missing = [
        f"{place}: {name!r} in {hint!r}" for place, hint in hints() for name in named_keys(hint)
    ]
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (options, "leave out --targets"),
        (options, "batchscale status --target x"),
        (attributes, "see `batchscale.again`"),
        (unknown_commands, "`batchscale regime runs`"),
        (unknown_commands, "batchscale regime runs"),
        (keys, "the key `processors: 1`"),
        (keys, "for example: --set processors=1"),
        (files, "(`ray/group.py`)"),
        (named_keys, "set fewer workers or processors, or give the --address of a larger cluster"),
        (named_keys, "leave out processors, or give the --address of a cluster that has some"),
        (named_keys, "processors: 0, or off"),
    ],
)
def test_what_does_not_exist_is_found(find: Callable[[str], Iterator[str]], text: str) -> None:
    assert list(find(text))
