"""Experiment files that are refused: the tables of ``wrong_files``, through the public load.

A table holds lists of cases below the name of the right file of ``bases.yaml`` that they change. A
case gives keys of that file, with dots (``grid.batch_size``), and their values, which are written
into it as they stand in the table; or the whole ``text`` of another file. A key that is the name of
a user's file changes that one. Besides:

    error: what the message begins with, behind the file and the line; a case without is right, and
      so is the file that it resolves to
    hint: a part of the hint; a case without has none
    at: a text in the line of the error, or its place (``base.yaml:3``), or ``no line``; without it,
      the error is at the first key that the case changes
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import yaml
from yaml import CollectionNode, MappingNode, Node

import workloads
from experiments.config.compile import Experiment, load, parse
from experiments.errors import ExperimentError
from tests.experiments import cut_workloads, stream_workloads
from tests.experiments.files import RIGHT, folder
from tests.experiments.technique_file import USER_FILE
from tests.experiments.test_user_optimizers import GROUPED, RULES
from workloads import WorkloadError, download

TABLES = Path(__file__).parent / "wrong_files"
FILES: dict[str, str] = {
    **RIGHT["files"],
    "grouped.py": GROUPED,
    "my.py": USER_FILE,
    "rules.py": RULES,
    "streams.py": stream_workloads.FILE,
    "cut.py": cut_workloads.FILE,
    "text.txt": "some words and more of them\n" * 60,
    "broken.safetensors": "no weights",
}
"""What lies beside the experiment file, with what ``folder`` writes and weights."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A wrong file, others that are changed beside it, and what is said of it."""

    files: Mapping[str, str]
    place: str
    error: str | None
    hint: str | None

    @classmethod
    def read(cls, base: str, node: MappingNode, table: str) -> Case:
        """Of a node of the text ``table``."""
        given: dict[str, Node] = {key.value: value for key, value in node.value}
        said = {key: given.pop(key).value for key in ("error", "hint", "at") if key in given}
        names = [name for name in given if name in FILES]
        files = {name: changed(FILES[name], given.pop(name), table) for name in names}
        if "text" in given:
            lines = given["text"].value.split("\n")
        else:
            lines = RIGHT["bases"][base].splitlines()
            for key, value in given.items():
                write(lines, key, raw(value, table))
        files["my.yaml"] = "\n".join(lines)
        at = said.get("at", "")
        if not at:
            place = f"my.yaml:{located(lines, next(iter(given)))[0] + 1}: "
        elif at == "no line":
            place = ""
        elif re.search(r"\.yaml:\d+$", at):
            place = f"{at}: "
        else:
            place = f"my.yaml:{next(i for i, line in enumerate(lines, 1) if at in line)}: "
        return cls(files=files, place=place, error=said.get("error"), hint=said.get("hint"))


def raw(node: Node, table: str) -> str:
    """The text of a value, its lines as far to the left as may be."""
    text = table[node.start_mark.index : node.end_mark.index].rstrip()
    if not isinstance(node, CollectionNode) or node.flow_style:
        return text
    return "\n" + textwrap.dedent(" " * node.start_mark.column + text)


def changed(text: str, node: Node, table: str) -> str:
    """A file with the values of some keys replaced, or with another text."""
    if not isinstance(node, MappingNode):
        return str(node.value)
    lines = text.splitlines()
    for key, value in node.value:
        write(lines, key.value, raw(value, table))
    return "\n".join(lines)


def write(lines: list[str], key: str, value: str) -> None:
    begin, end = located(lines, key)
    head = lines[begin].partition(":")[0]
    below = "  " * (key.count(".") + 1)
    first, *rest = value.split("\n")
    lines[begin:end] = [f"{head}: {first}".rstrip(), *(below + line for line in rest)]


def located(lines: list[str], key: str) -> tuple[int, int]:
    """The line of a key, which is added if need be, and the one behind its value."""
    begin, end = -1, len(lines)
    for depth, name in enumerate(key.split(".")):
        head, below = f"{'  ' * depth}{name}:", "  " * (depth + 1)
        found = (i for i in range(begin + 1, end) if lines[i].startswith(head))
        if (begin := next(found, end)) == end:
            lines.insert(end, head)
        deeper = (i for i in range(begin + 1, len(lines)) if not lines[i].startswith(below))
        end = next(deeper, len(lines))
    return begin, end


def cases() -> Iterator[Any]:
    """Each is called by its line in its table."""
    for path in sorted(TABLES.glob("*.yaml")):
        if path.name == "bases.yaml":
            continue
        table = path.read_text()
        root = yaml.compose(table)
        assert isinstance(root, MappingNode)
        for base, listed in root.value:
            for node in listed.value:
                case = Case.read(base.value, node, table)
                yield pytest.param(case, id=f"{path.name}:{node.start_mark.line + 1}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's files, and the weights of two packaged workloads."""
    here = tmp_path_factory.mktemp("wrong")
    folder(here)
    for name, text in FILES.items():
        (here / name).write_text(text)
    for name in ("digits-softmax", "digits-mlp"):
        weights = workloads.load(name).model().state_dict()
        safetensors.torch.save_file(weights, here / f"{name}.safetensors")
    return here


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """In that folder, where no data set can be found or downloaded."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("BATCHSCALE_DATA", str(place / "data"))
    monkeypatch.setattr(download, "reachable", lambda _: False)


@pytest.mark.parametrize("case", [*cases()])
def test_a_file(place: Path, case: Case) -> None:
    for name, text in case.files.items():
        (place / name).write_text(text)
    try:
        if case.error is None:
            check_right(load("my.yaml"))
            return
        with pytest.raises((ExperimentError, WorkloadError)) as raised:
            load("my.yaml").studies()
    finally:
        for name in case.files.keys() & FILES.keys():
            (place / name).write_text(FILES[name])
    error = raised.value
    assert isinstance(error, ExperimentError | WorkloadError)
    message, hint = str(error).replace(str(place), "HERE"), error.hint
    assert message.startswith(case.place + case.error)
    assert (hint is None) == (case.hint is None)
    assert (case.hint or "") in (hint or "")
    assert "\n" not in f"{message}{hint}"
    assert not (place / "ran").exists()


@pytest.mark.parametrize("base", RIGHT["bases"])
def test_the_files_that_they_change_are_right(place: Path, base: str) -> None:
    (place / "my.yaml").write_text(RIGHT["bases"][base])
    check_right(load("my.yaml"))


def check_right(experiment: Experiment) -> None:
    """It has studies, and the file that it resolves to has the same ones."""
    again = parse(experiment.to_yaml(), base=Path(experiment.base))
    assert again.to_yaml() == experiment.to_yaml()
    studies, others = experiment.studies(), again.studies()
    assert studies == others
    assert [study.draw(0, 3) for study in studies] == [study.draw(0, 3) for study in others]
    assert studies
