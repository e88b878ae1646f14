"""Whether a sweep knows enough to stop itself, and what its results say of it then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from experiments.records import amend
from experiments.records.present_targets import at_present_targets
from experiments.records.recorded import of_trials
from experiments.scheduling.study_state import StudyState
from results.counts import count
from results.reader import open as open_results
from results.schema import json_text
from results.store import Store

_LISTED = 6


class Width(Protocol):
    """The part of ``analysis.widths.width.Width`` that is used."""

    @property
    def label(self) -> str: ...
    @property
    def factor(self) -> float: ...


class Measure(Protocol):
    """``analysis.widths.width.widths``, which the interface hands down."""

    def __call__(
        self, trials: pd.DataFrame, studies: pd.DataFrame, quantity: str
    ) -> Sequence[Width]: ...


class StoppingRule:
    """The widths at which an experiment's sweep stops itself.

    Args:
        within: by quantity, the factor within which the interval of each curve is to lie.
    """

    def __init__(self, store: Store, within: Mapping[str, float], measure: Measure) -> None:
        self.store, self.within, self.measure = store, within, measure

    def exceeding(self, states: Sequence[StudyState]) -> list[str]:
        """The curves that are not within their factors by the trials that ``states`` have drawn,
        with what they are within: ``sgd 1.62``."""
        amend.join_searches(self.store, states)
        drawn = [trial.id for state in states for trial in state.drawn()]
        ours, experiment = {s.study.id: s.study for s in states}, states[0].study.experiment
        targets = {name: study.targets[-1] for name, study in ours.items()}
        trials = of_trials(self.store, drawn).trials
        trials = at_present_targets(trials, targets, lambda: open_results(self.store.location))
        # A recorded trial that needs no training may still name an earlier target.
        target = states[0].study.targets[-1]
        trials = trials.assign(target_metric=target.metric, target_value=target.value)
        studies = self.store.studies(experiment)
        studies = studies[studies["study"].isin(ours)]
        return [
            f"{width.label or name} {width.factor:.3g}".replace("inf", "open")
            for name, factor in self.within.items()
            for width in self.measure(trials, studies, name)
            if not width.factor <= factor
        ]

    def conclude(self, states: Sequence[StudyState], rows: Mapping[str, Mapping[str, Any]]) -> str:
        """Write how many trials each study has wanted, with a note where that is fewer than it
        might; what to say at the end of the sweep.

        Args:
            rows: the studies' own, by study.
        """
        most = max(state.study.trials for state in states)
        wanted = max(state.trials for state in states)
        each = (f"{name.replace('_', ' ')} within {f:g}" for name, f in self.within.items())
        said = f"{' and '.join(each)} after {wanted:,} of {count(most, 'trial')} in each study"
        stopped = any(state.trials < state.study.trials for state in states)
        notes = [f"the sweep stopped itself: {said}"] if stopped else None
        before = self.store.studies(states[0].study.experiment).set_index("study")
        new = []
        for state in states:
            last, text = before.loc[state.study.id], notes and json_text(notes)
            same = text == last["notes"] if text else pd.isna(last["notes"])
            if not same or last["trials_wanted"] != state.trials:
                row = rows[state.study.id]
                new.append({**row, "trials_wanted": state.trials, "notes": notes})
        self.store.add_studies(new)
        if stopped:
            return f"stopped: {said}."
        lacking = self.exceeding(states)
        more = f" and {len(lacking) - _LISTED:,} more" if len(lacking) > _LISTED else ""
        not_within = f"not {said}: {', '.join(lacking[:_LISTED])}{more}."
        return not_within if lacking else f"{said}."
