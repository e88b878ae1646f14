"""``plan --like``: the packaged curves that are nearest to a workload without a curve.

Where steps stop to fall differs between workloads by orders of magnitude (Shallue et al. 2019), so
the nearest curves are named as what they are, beside the range over all of the same task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import NamedTuple

from analysis.figure_data import Query
from batchscale.output.errors import CommandError
from results.errors import nearest
from results.reader import open as open_results

_IMAGES, _TEXT = "image classification", "language modelling"
_DATA = {
    **dict.fromkeys(("fashion-mnist8", "fashion-mnist", "mnist8", "mnist", "digits"), _IMAGES),
    **dict.fromkeys(("cifar100", "cifar10", "imagenet"), _IMAGES),
    **dict.fromkeys(("lm1b", "c4", "stdlib", "shakespeare", "wikitext2"), _TEXT),
}
"""The task of each data set; of names that begin alike the longer one is first."""
_MODELS = {
    ("convolutional", _IMAGES): ("resnet", "vgg", "cnn"),
    ("fully connected", None): ("mlp", "fc", "softmax"),
    ("transformer", _TEXT): ("transformer", "gpt", "llama"),
    ("recurrent", _TEXT): ("lstm",),
}
"""Families of models by kind, and the task where no data set says it."""
_CURVES = {
    **{name: name for name in ("digits-mlp", "digits-fc", "mnist-fc", "mnist8-fc", "lm1b-lstm")},
    **{name: name for name in ("fashion-mnist8-fc", "cifar10-resnet8", "lm1b-transformer-base")},
    **{f"{name}-simple-cnn": f"{name}-simple-cnn" for name in ("mnist", "fashion-mnist")},
    **{f"c4-transformer-{size}": "c4-transformer" for size in ("85m", "151m", "604m")},
    **{"lm-transformer": "stdlib-transformer", "lm-lstm": "stdlib-lstm"},
    **{"resnet": "imagenet-resnet50", "gpt3": "c4-gpt"},
}
"""Workloads with packaged curves, and the data set and the model of each."""
_PLAIN = '(technique IS NULL OR technique = \'{"precision":"float32"}\')'
_MAIN = "experiment NOT LIKE 'techniques-%' AND experiment NOT LIKE 'gallery-%'"


class _Traits(NamedTuple):
    data: str | None
    family: str | None
    kind: str | None
    task: str | None

    @classmethod
    def of(cls, text: str) -> _Traits:
        models = {name: of for of, names in _MODELS.items() for name in names}
        data = next((name for name in _DATA if name in text), None)
        family = next((name for name in models if name in text), None)
        kind, task = models[family] if family else (None, None)
        return cls(data, family, kind, _DATA[data] if data else task)


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """A workload without a curve, and the one whose packaged curves are taken for it."""

    name: str
    workload: str
    why: str
    task: str

    def query(self, query: Query) -> Query:
        """Of that workload's curves."""
        return _of_workloads(query, [self.workload], _PLAIN)

    def all_of_task(self, query: Query) -> Query:
        """Of the packaged curves of the same task, but for studies of techniques."""
        alike = [name for name, of in _CURVES.items() if _Traits.of(of).task == self.task]
        return _of_workloads(query, alike, f"{_PLAIN} AND {_MAIN}")


def like(name: str) -> Likeness:
    """The nearest workload with packaged curves.

    Raises:
        CommandError: neither its data set nor its model is known, or no curve is near.
    """
    from workloads.registry import names

    text = _CURVES.get(name, name.strip().lower().replace("_", "-").replace("/", "-"))
    own, traits = _Traits.of(text), {each: _Traits.of(of) for each, of in _CURVES.items()}
    if own.task is None:
        hint = nearest(name, {*names(), *_CURVES} - {name}, "a workload's name")
        raise CommandError(
            f"--like {name} names no data set and no model that is known",
            hint=f"{hint}; or DATASET/MODEL, as cifar10/resnet18",
        )
    reasons = {
        "the same workload": lambda each: each == name,
        "the same data set and family of model": lambda each: traits[each][:2] == own[:2],
        "the same data set": lambda each: traits[each].data == own.data,
        "the same kind of model and task": lambda each: traits[each][2:] == own[2:],
    }
    for why, fits in reasons.items():
        if alike := [each for each in _CURVES if fits(each)]:
            best = max(alike, key=lambda each: SequenceMatcher(None, text, _CURVES[each]).ratio())
            return Likeness(name=name, workload=best, why=why, task=own.task)
    raise CommandError(
        f"no packaged curve is near to {name}: none is of its data set, or of its kind of model",
        hint="batchscale plan published with --where chooses another one by hand",
    )


def _of_workloads(query: Query, workloads: Sequence[str], condition: str) -> Query:
    named = {name: open_results(name).trials["workload"] for name in ("own", "published")}
    listed = ", ".join(f"'{name}'" for name in workloads)
    where = [query.where or "true", f"workload IN ({listed})", condition]
    return replace(
        query,
        sources=[name for name, column in named.items() if column.isin(workloads).any()],
        where=" AND ".join(f"({each})" for each in where),
    )
