"""What techniques load before a study's models are made, once a study on a worker."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Protocol

import workloads
from experiments.identity import technique_identity
from experiments.techniques.base import Preparation
from experiments.techniques.composed import Techniques

_STUDIES = 8
_prepared: OrderedDict[Any, Techniques] = OrderedDict()


class Context(Preparation, Protocol):
    """A study on a worker."""

    @property
    def techniques(self) -> Techniques:
        """Those of the study, as its arguments say."""


def prepared(context: Context) -> Techniques:
    """The techniques with what they have loaded: for all packs of a study the same objects."""
    if not context.techniques.define("prepare"):
        return context.techniques
    study = context.study
    files = technique_identity(study.technique, study.workload.base)
    key = (
        repr(study),
        json.dumps(files, sort_keys=True),  # an edited file is read again
        json.dumps(workloads.identity(context.workload), sort_keys=True),
        context.device,
    )
    if key not in _prepared:
        _prepared[key] = context.techniques.prepare(context)
        while len(_prepared) > _STUDIES:
            _prepared.popitem(last=False)
    _prepared.move_to_end(key)
    return _prepared[key]
