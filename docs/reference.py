"""The pages commands.md and schema.md: every option and every column, from the code.

``python docs/reference.py`` writes what follows the mark of each page; a test holds them to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from batchscale.cli.app import app
from results import schema

DOCS = Path(__file__).resolve().parent
MARK = "<!-- Written by `python docs/reference.py` from here on. -->\n"


def commands() -> str:
    """Each command with its arguments and options; those of several commands once."""
    group: Any = get_command(app)
    users: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        for row in _options(command):
            users.setdefault(row, []).append(name)
    parts = ["## Options of several commands\n", "| option | meaning | commands |", "|---|---|---|"]
    parts += [f"{row} {_listed(of)} |" for row, of in users.items() if len(of) > 1]
    for name, command in group.commands.items():
        arguments = [
            f"`{p.metavar or p.name.upper()}`"
            for p in command.params
            if p.param_type_name == "argument"
        ]
        parts.append(f"\n## {name}\n\n{_line(command.help)}\n\nArguments: {', '.join(arguments)}.")
        rows = [row for row in _options(command) if len(users[row]) == 1]
        parts += ["\n| option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(parts) + "\n"


def _options(command: Any) -> Iterator[str]:
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden:
            value = "" if each.is_flag or each.metavar is None else f" {each.metavar}"
            flags = ", ".join(f"`{flag}{value}`" for flag in each.opts).replace("|", "\\|")
            yield f"| {flags} | {_line(each.help)} |"


def _line(text: str | None) -> str:
    return " ".join((text or "").replace("|", "\\|").split())


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def columns() -> str:
    """Each table with its columns, their types, and what the schema says of them; columns of an
    earlier table by their names."""
    source = Path(schema.__file__).read_text(encoding="utf-8")
    groups = re.findall(r"^_(\w+): dict.*?\{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    comments = {
        group: dict(re.findall(r'^    "(\w+)": _\w+,  # (.*)$', lines, re.MULTILINE))
        for group, lines in groups
    }
    shared = {name: text for of_group in comments.values() for name, text in of_group.items()}
    parts: list[str] = []
    listed: dict[tuple[str, str, str], str] = {}
    for table, fields in schema.SCHEMAS.items():
        meanings = {**shared, **comments[table.upper()]}
        described = [(f.name, str(f.type), _line(meanings.get(f.name))) for f in fields]
        new = [column for column in described if column not in listed]
        parts += [f"## {table}\n", "| column | type | meaning |", "|---|---|---|"]
        parts += [f"| `{name}` | {kind} | {text} |" for name, kind, text in new if text]
        plain: dict[str, list[str]] = {}
        for name, kind, text in new:
            if not text:
                plain.setdefault(kind, []).append(name)
        for kind, names in plain.items():
            parts.append(f"\nFurther columns of type {kind}: {_listed(names)}.")
        for other in dict.fromkeys(listed.values()):
            names = [column[0] for column in described if listed.get(column) == other]
            if names:
                parts.append(f"\nAs in `{other}`: {_listed(names)}.")
        parts.append("")
        listed.update(dict.fromkeys(new, table))
    return "\n".join(parts)


PAGES = {"commands.md": commands, "schema.md": columns}


def renewed(page: str) -> str:
    """The page as it would be written."""
    head, _, _ = (DOCS / page).read_text(encoding="utf-8").partition(MARK)
    return f"{head}{MARK}\n{PAGES[page]()}".rstrip("\n") + "\n"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(renewed(name), encoding="utf-8")
        print(f"wrote {DOCS / name}")
