"""What may not change while the code does: trials' ids and seeds, the answers about packaged data,
and the names that users write.

``python -m tests.contract.frozen`` writes the files beside this one again. Their difference in git
is what changed for users, and is to be read before it is committed: an id that changed is a trial
that is trained again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from tests.analysis.reference import read

FOLDER = Path(__file__).parent
EACH = 6  # trials of each packaged experiment whose ids are held: some 200 in all
ANSWERS = {
    "regimes-own": ("regimes", "own", None),
    "regimes-published": ("regimes", "published", None),
    "techniques-digits": ("techniques", "own", "experiment = 'techniques-digits'"),
    "techniques-text": ("techniques", "own", "experiment = 'techniques-text'"),
}
"""Of each file: what is asked, of which packaged data, with which condition."""


def experiments() -> list[str]:
    """The names of the packaged experiments."""
    import experiments.config

    folder = Path(experiments.config.__file__).parents[1] / "files"
    return sorted(path.stem for path in folder.glob("*.yaml"))


def ids(experiment: str, count: int) -> pd.DataFrame:
    """Ids and seeds of ``count`` trials of a packaged experiment, spread over its studies; none
    where they depend on a text that differs between machines.

    Raises:
        WorkloadError: its data are not on this machine.
    """
    from batchscale.sweeps import load
    from experiments.records.planned import planned

    studies = [each.study for each in planned(load(experiment, {}, ()), known={})]
    if studies[0].workload.data_fingerprint is not None:
        return pd.DataFrame()
    rows = []
    for place in range(count):
        study = studies[place * len(studies) // count]
        row = place % study.max_rows
        trial = study.trial(row)
        rows.append((experiment, study.id, row, trial.id, trial.seed))
    return pd.DataFrame(rows, columns=["experiment", "study", "row", "trial", "seed"]).astype(str)


def answer(name: str) -> pd.DataFrame:
    """One of ``ANSWERS``, a row a curve."""
    from analysis.figure_data import Query
    from batchscale import answers
    from batchscale.output import regime_table, technique_table

    question, source, where = ANSWERS[name]
    query = Query(sources=[source], where=where)
    if question == "regimes":
        return read(regime_table.regimes(answers.regimes(query), "csv"))
    return read(technique_table.techniques(answers.techniques(query), "csv"))


def interface() -> dict[str, Any]:
    """The names that users write, and the columns that they read."""
    from batchscale.cli.app import app
    from batchscale.output import errors
    from experiments.config.compile import Experiment
    from results.schema import SCHEMAS

    command: Any = typer.main.get_command(app)
    return {
        "commands": {
            name: sorted(option for each in given.params for option in each.opts)
            for name, given in sorted(command.commands.items())
        },
        "keys of an experiment file": sorted(Experiment.model_fields),
        "tables": {
            table: {field.name: str(field.type) for field in schema}
            for table, schema in SCHEMAS.items()
        },
        "exit statuses": {
            name: getattr(errors, name)
            for name in ("ERROR", "USAGE", "FAILED_TRIALS", "NOT_COMPLETE", "INTERRUPTED")
        },
    }


def values(frame: pd.DataFrame, *, flat: bool = False) -> pd.DataFrame:
    """A row a value, JSON in a cell taken apart. ``flat``: the bends of knees alone, whose squares
    are so flat that another processor finds a least one 3e-4 away."""
    rows = []
    for number, row in enumerate(frame.to_dict("records")):
        for column, text in row.items():
            parts = ((f"{column}{at}", value) for at, value in _parts(text))
            wanted = (each for each in parts if (each[0] == "best.k") == flat)
            rows += [(f"row {number}, {name}", each) for name, each in wanted]
    return pd.DataFrame(rows, columns=["of", "value"])


def _parts(text: str) -> Iterator[tuple[str, str]]:
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict | list):
        yield "", text
        return
    for key, value in loaded.items() if isinstance(loaded, dict) else enumerate(loaded):
        written = value if isinstance(value, str) else json.dumps(value)
        yield from ((f".{key}{at}", part) for at, part in _parts(written))


def _frozen_ids() -> Iterator[pd.DataFrame]:
    from workloads.errors import WorkloadError

    for name in experiments():
        try:
            yield ids(name, EACH)
        except WorkloadError as error:
            print(f"{name}: not held, since {error}")


def main() -> None:
    """Write all files again."""
    text = json.dumps(interface(), indent=1, ensure_ascii=False)
    (FOLDER / "interface.json").write_text(text + "\n", encoding="utf-8")
    frames = {"ids": pd.concat(_frozen_ids()), **{name: answer(name) for name in ANSWERS}}
    for name, frame in frames.items():
        frame.to_csv(FOLDER / f"{name}.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
