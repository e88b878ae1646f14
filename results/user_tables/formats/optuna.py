"""A study of Optuna in its storage: a SQLite file, or a journal."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.table_file import TableFile


def _read(path: Path) -> TableFile | None:
    with path.open("rb") as stream:
        head = stream.read(64)
    journal = b'"op_code"' in head
    if not journal and not head.startswith(b"SQLite format 3"):
        return None
    try:
        optuna = import_module("optuna")
        storages = import_module("optuna.storages")
        journals = import_module("optuna.storages.journal")
    except ImportError as error:
        raise ResultsError(f"{path} is read by Optuna", hint="pip install optuna") from error
    storage: Any = f"sqlite:///{path.absolute()}"
    if journal:
        storage = storages.JournalStorage(journals.JournalFileBackend(str(path)))
    rows: list[dict[str, Any]] = []
    for summary in optuna.get_all_study_summaries(storage):
        name = summary.study_name
        study = optuna.load_study(study_name=name, storage=storage)
        for trial in study.trials:
            about: dict[str, Any] = {"study_name": name, "run": f"{name}-{trial.number}"}
            about |= {f"params_{key}": value for key, value in trial.params.items()}
            about |= {f"user_attrs_{key}": value for key, value in trial.user_attrs.items()}
            about["state"] = trial.state.name
            curve = sorted(trial.intermediate_values.items())
            rows += [{**about, "intermediate_step": step, "value": value} for step, value in curve]
            if not curve:
                rows.append({**about, "value": trial.values[0] if trial.values else None})
    if any("intermediate_step" in row for row in rows):
        rows = [row for row in rows if "intermediate_step" in row]
    return TableFile.of_rows(path, rows, [f"trial {row['run']}" for row in rows])


FORMAT = Format(name="a study of Optuna", files=("*.db", "*.sqlite3", "*.log"), read=_read)
