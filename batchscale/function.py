"""Runs a function of a user's file as the program of a trial.

``python -P -m batchscale.function train.py:train batch_size=64 learning_rate=0.1`` calls
``train(config, report)``: a dict of the values, and ``batchscale.report``. The file is imported as
``python train.py`` would find it, with the modules beside it, and as itself in processes that it
starts.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys

from batchscale.reporting import report


def main(spec: str, *values: str) -> None:
    """Call it.

    Args:
        spec: ``FILE.py:FUNCTION``.
        values: ``NAME=VALUE``, as Python writes it.
    """
    path, _, name = spec.rpartition(":")
    folder, file = os.path.split(os.path.abspath(os.path.expanduser(path)))
    sys.path.insert(0, folder)
    config = {key: ast.literal_eval(text) for key, _, text in (v.partition("=") for v in values)}
    getattr(importlib.import_module(file.removesuffix(".py")), name)(config, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
