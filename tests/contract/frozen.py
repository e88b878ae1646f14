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

FOLDER = Path(__file__).parent
EACH = 6
"""Trials of each packaged experiment whose ids are held: some 200 in all."""
ANSWERS = {
    "regimes-own": ("regimes", "own", None),
    "regimes-published": ("regimes", "published", None),
    "techniques-digits": ("techniques", "own", "experiment = 'techniques-digits'"),
    "techniques-text": ("techniques", "own", "experiment = 'techniques-text'"),
}
"""Of each file: what is asked, of which packaged data, with which condition. The numbers of figures
are held by ``tests/analysis/test_figures_numbers.py``, in the same way."""


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

    plans = planned(load(experiment, {}, ()), known={}).plans
    if plans[0].study.workload.data_fingerprint is not None:
        return pd.DataFrame()
    rows = []
    for place in range(count):
        plan = plans[place * len(plans) // count]
        row = place % plan.max_rows
        (trial,) = plan.trials(row, row + 1)
        rows.append(
            {
                "experiment": experiment,
                "study": plan.study.id,
                "row": row,
                "trial": trial.id,
                "seed": trial.seed,
            }
        )
    return pd.DataFrame(rows).astype(str)


def answer(name: str) -> pd.DataFrame:
    """One of ``ANSWERS``, a row a curve."""
    from analysis.figure_data import Query
    from batchscale import answers
    from batchscale.output import regime_table, technique_table

    question, source, where = ANSWERS[name]
    query = Query(sources=[source], where=where)
    if question == "regimes":
        text = regime_table.regimes(answers.regimes(query), "csv")
    else:
        text = technique_table.techniques(answers.techniques(query), "csv")
    return read(text)


def interface() -> dict[str, Any]:
    """The names that users write, and the columns that they read."""
    from batchscale.cli.app import app
    from batchscale.output import errors
    from experiments.config.compile import Experiment
    from results.schema import SCHEMAS

    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    return {
        "commands": {
            name: sorted(option for each in given.params for option in each.opts)
            for name, given in sorted(commands.items())
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


def read(text: str) -> pd.DataFrame:
    """CSV text, every cell as text."""
    from tests.analysis.reference import read as of_text

    return of_text(text)


def _frozen_ids() -> Iterator[pd.DataFrame]:
    from workloads.errors import WorkloadError

    for name in experiments():
        try:
            held = ids(name, EACH)
        except WorkloadError as error:
            print(f"{name}: not held, since {error}")
            continue
        if held.empty:
            print(f"{name}: not held, since its text is that of this Python's standard library")
        else:
            yield held


def _write(name: str, frame: pd.DataFrame) -> None:
    frame.to_csv(FOLDER / name, index=False, lineterminator="\n")


def main() -> None:
    """Write all files again."""
    text = json.dumps(interface(), indent=1, ensure_ascii=False)
    (FOLDER / "interface.json").write_text(text + "\n", encoding="utf-8")
    _write("ids.csv", pd.concat(_frozen_ids()))
    for name in ANSWERS:
        _write(f"{name}.csv", answer(name))


if __name__ == "__main__":
    main()
