"""Trials that were recorded when their optimizer or schedule was called otherwise are written
again.

Results are grouped by what these are called: without this, a study whose optimizer got a display
name would be two halves. Nothing is trained; measurements come along.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from experiments.plan import Study
from experiments.records.recorded import some
from results.schema import SCHEMAS
from results.store import Store

_AT_ONCE = 10_000
"""Trials whose measurements are held in memory together."""

_NAMED = ("optimizer", "schedule")
_OF_THE_COMMIT = ("experiment", "run", "time")


def rename(store: Store, studies: Sequence[Study]) -> int:
    """Write the trials of an experiment's ``studies`` whose optimizer or schedule is called
    otherwise now.

    Returns:
        How many were written.
    """
    experiment = studies[0].experiment
    labels = {
        study.id: {"optimizer": study.optimizer_label, "schedule": study.schedule_label}
        for study in studies
    }
    recorded = store.trials(experiment, ["study", "trial", *_NAMED])
    recorded = recorded[recorded["study"].isin(labels.keys())]
    differs = recorded["trial"].isna()
    for column in _NAMED:
        now = recorded["study"].map({study: named[column] for study, named in labels.items()})
        differs |= now.ne(recorded[column])
    others = recorded["trial"][differs].tolist()
    for start in range(0, len(others), _AT_ONCE):
        part = some(store, others[start : start + _AT_ONCE])
        fields = [field for field in SCHEMAS["measurements"] if field.name not in _OF_THE_COMMIT]
        frame = part.read_measurements([field.name for field in fields])
        store.commit_columns(
            experiment,
            measurements=pa.Table.from_pandas(frame, pa.schema(fields), preserve_index=False),
            trials=[
                {
                    **{name: value for name, value in row.items() if name not in _OF_THE_COMMIT},
                    **labels[row["study"]],
                }
                for row in part.trial_rows.to_pylist()
            ],
        )
    return len(others)
