"""Which fields of a workload choose its examples, and which is its label smoothing."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.curves.groups import widen
from analysis.figure_data import FigureData
from analysis.figures.paper.compared import fields_of

_WORDS = ("examples", "subset", "fraction", "samples", "classes")


def is_smoothing(name: str) -> bool:
    """Whether a column is the label smoothing, of whatever table."""
    return name.rpartition(".")[2] == "label_smoothing"


def of_data(shown: FigureData) -> list[str]:
    """The fields that vary and choose examples: those with which the size of the training set
    changes, or that are called so where it is not recorded."""
    fields = [name for name in fields_of(shown.curves) if not is_smoothing(name)]
    if not shown.sources:
        return [name for name in fields if _called(name)]
    frame = widen(shown.trials).frame
    known = "train_examples" in frame and frame["train_examples"].notna().any()
    return [
        name
        for name in fields
        if name in frame and (_sizes(frame, name, fields) if known else _called(name))
    ]


def _called(name: str) -> bool:
    return any(word in name for word in _WORDS)


def _sizes(frame: object, name: str, fields: Sequence[str]) -> bool:
    """Whether training sets differ in size where workloads differ in this field alone."""
    import pandas as pd

    assert isinstance(frame, pd.DataFrame)
    some = frame[frame[name].notna() & frame["train_examples"].notna()]
    keys = ["workload", "dataset", "model", *(each for each in fields if each != name)]
    texts = [some[each].astype(str) for each in keys]
    counts = some.assign(value=some[name].astype(str)).groupby(texts, sort=False)
    return bool(((counts["value"].nunique() > 1) & (counts["train_examples"].nunique() > 1)).any())
