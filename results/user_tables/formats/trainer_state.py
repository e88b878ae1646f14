"""``trainer_state.json`` of Transformers, of a run and of each of its checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import flat, text_of
from results.user_tables.table_file import TableFile

_SETTINGS = {"train_batch_size": "config.per_device_train_batch_size", "max_steps": "max_steps"}
"""Its train_batch_size is that of one process."""


def _read(path: Path) -> TableFile | None:
    try:
        state = json.loads(text_of(path))
    except ValueError as error:
        raise ResultsError(f"{path} is not JSON: {error}") from error
    if not isinstance(state, dict) or "log_history" not in state:
        return None
    settings = {ours: state[name] for name, ours in _SETTINGS.items() if state.get(name)}
    rows = [{**settings, **flat(row)} for row in state["log_history"]]
    places = [f"log_history {number}" for number in range(1, len(rows) + 1)]
    table = TableFile.of_rows(path, rows, places)
    return replace(table, means={"step": "step"}, logged=True)


def _last(files: list[Path]) -> list[Path]:
    """One for each run: each checkpoint's has the history until then."""

    def at(file: Path) -> tuple[bool, int]:
        number = file.parent.name.removeprefix("checkpoint-")
        return not number.isdigit(), int(number) if number.isdigit() else 0

    runs: dict[Path, list[Path]] = {}
    for file in files:
        runs.setdefault(file.parent.parent if not at(file)[0] else file.parent, []).append(file)
    return [max(each, key=at) for each in runs.values()]


FORMAT = Format(
    name="trainer_state.json of Transformers", files=("trainer_state.json",), read=_read, runs=_last
)
