"""What the names of runs, of their folders or their files say: ``adamw-bs64-lr3e-4-seed0``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from results.errors import ResultsError
from results.user_tables import names
from results.user_tables.table_file import TableFile

_SIZE = r"(?<![a-z])(?:g?bs|bsz|batch|batch[-_ ]?size)(?:[-_=]|: ?)?(\d+(?:ki?)?)(?![\d.]|[a-z])"
_VALUE = r"[-_=]?(\d+(?:\.\d+)?(?:e-?\d+)?)(?![\d.]|[a-z])"
_SAID = {
    "batch_size": re.compile(_SIZE, re.IGNORECASE),
    "learning_rate": re.compile(rf"(?<![a-z])(?:lr|learning[-_ ]?rate){_VALUE}", re.IGNORECASE),
    "weight_decay": re.compile(rf"(?<![a-z])(?:wd|weight[-_ ]?decay){_VALUE}", re.IGNORECASE),
    "seed": re.compile(r"(?<![a-z])seed[-_=]?(\d+)", re.IGNORECASE),
}
_MULTIPLE = re.compile(
    r"(?<![a-z])(?:gas?|acc(?:um)?|n?gpus?|dp)[-_=]?(?![01](?!\d))\d+", re.IGNORECASE
)
_ID = re.compile(r"(?<![a-z0-9])(?=[a-f]*\d)[a-f0-9]{6,}(?![a-z0-9])", re.IGNORECASE)
"""A hexadecimal identifier, such as of a commit: its letters are no words."""
_TEXT = re.compile(r"[a-z]{3,}", re.IGNORECASE)
_NUMBER = re.compile(rf"(?<![a-z0-9])([a-z]{{2,}}){_VALUE}", re.IGNORECASE)
_NO_SETTING = re.compile(
    r"runs?|try|trials?|rep(eat|lica|lication)?|exp(eriment)?|seed|fold|index|idx|id|job|task|part"
    r"|chunk|shard|version|ver|gpus?|node|rank|host|worker|step|epoch|ckpt|checkpoint|steps?",
    re.IGNORECASE,
)
"""Words whose numbers tell runs, or parts of a run, apart."""


def _columns(table: TableFile) -> Iterator[str]:
    aliases = (*names.AXES["run"], "name")
    yield from (each for each in ("run", "file") if table.has(each))
    yield from names.candidates(table, aliases, config=False)


def _said(table: TableFile, setting: str) -> TableFile:
    """With the column ``setting``, if each name says it once."""
    for column in _columns(table):
        texts = [str(cell) for cell in table.columns[column]]
        said = [_SAID[setting].findall(text) for text in texts]
        if said and all(len({*each}) == 1 for each in said):
            means = {**table.means, setting: f"as {column} says ({texts[0]})"}
            made = table.with_columns({setting: [each[0] for each in said]})
            return replace(made, means=means)
    return table


def with_batch_size_of_names(table: TableFile) -> TableFile:
    """With the batch size, if each name says it.

    Raises:
        ResultsError: they say by what it is to be multiplied, too.
    """
    made = _said(table, "batch_size")
    for column in _columns(table) if made is not table else ():
        for cell in table.columns[column]:
            if multiple := _MULTIPLE.search(str(cell)):
                raise ResultsError(
                    f"{table.path}: {column} {cell} may say the batch size of one device's forward "
                    f"pass, for {multiple[0]} is there too",
                    hint="add a column batch_size, or a config.json beside each log",
                )
    return made


def with_settings_of_names(table: TableFile) -> TableFile:
    """With the settings that each name says and no column has, and with the column ``name`` of what
    else they say, if several share it: ``adamw`` and ``muon``."""
    for setting in ("learning_rate", "weight_decay", "seed"):
        if not any(names.candidates(table, names.SETTINGS[setting], config=True)):
            table = _said(table, setting)
    column = next(_columns(table), None)
    if column is None or table.has("name"):
        return table
    table = _with_numbers(table, column)
    cells = [*dict.fromkeys(table.columns[column])]
    parts = {c: _TEXT.findall(_ID.sub(" ", _without_settings(str(c)))) for c in cells}
    common = set.intersection(*map(set, parts.values()))
    said = {
        cell: " ".join(part for part in each if part not in common) for cell, each in parts.items()
    }
    if column == "file":  # a table each: of a seed, or of what makes a curve
        return table if any(said.values()) else table.renamed({"run": "file"})
    if sum(count > 1 for count in Counter(said.values()).values()) < 2:
        return table
    made = table.with_columns({"name": [said[cell] for cell in table.columns[column]]})
    return replace(made, means={**table.means, "name": f"what else {column} says"})


def _with_numbers(table: TableFile, column: str) -> TableFile:
    """With a setting for each other term behind which each name has a number, ``mom0.9``, where
    several runs have one of its values."""
    cells = [str(cell) for cell in table.columns[column]]
    said = {cell: _NUMBER.findall(_without_settings(cell)) for cell in dict.fromkeys(cells)}
    for term in dict.fromkeys(term for pairs in said.values() for term, _ in pairs):
        values = {c: [v for w, v in pairs if w == term] for c, pairs in said.items()}
        if _NO_SETTING.fullmatch(term) or any(len(each) != 1 for each in values.values()):
            continue
        different = len({each[0] for each in values.values()})
        if 1 < different < len(values) and not table.has(term):
            means = {**table.means, term: f"as {column} says ({cells[0]})"}
            table = table.with_columns({term: [values[cell][0] for cell in cells]})
            table = replace(table, means=means)
    return table


def _without_settings(name: str) -> str:
    for pattern in _SAID.values():
        name = pattern.sub(" ", name)
    return name
