"""No code of ours runs what it reads: nothing unpickles, no YAML or NumPy file builds objects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    *("batchscale", "workloads", "experiments", "results", "analysis"),
    *("benchmarks", "docs"),
)
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

UNPICKLERS = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle"),
    *("marshal", "shelve", "pickle5", "zodbpickle"),
}
ALLOWED = {
    # torchvision's reader of CIFAR-10 checks the md5 of the files that it unpickles; that it met
    # others is told by this exception.
    ("workloads/data.py", "pickle.UnpicklingError"),
    # Tries whether a Dataset can be pickled, and writes nothing.
    ("experiments/training/prefetch.py", "pickle.Pickler"),
    # Of a graph of operations, whose names it makes itself; nothing that was read enters the text.
    ("experiments/engines/tracing/simplify.py", "exec"),
}
CALLS = {
    "torch.load": "safetensors, by experiments.encoding",
    "torch.save": "what it writes, torch.load reads",
    "torch.package.PackageImporter": "runs code",
    "torch.hub.load": "runs code",
    "pandas.read_pickle": "unpickles",
    "numpy.load": "unpickles where allow_pickle is given; nothing here needs it",
    "numpy.fromfile": "reads any file as numbers",
    "yaml.load": "yaml.safe_load",
    "yaml.load_all": "yaml.safe_load_all",
    "yaml.unsafe_load": "yaml.safe_load",
    "yaml.full_load": "yaml.safe_load",
    "yaml.Loader": "yaml.SafeLoader",
    "yaml.UnsafeLoader": "yaml.SafeLoader",
    "yaml.FullLoader": "yaml.SafeLoader",
    "eval": "runs code",
    "exec": "runs code",
}


def refused(source: str, name: str) -> Iterator[str]:
    """``line: what`` of whatever in a file is refused."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    """What a name of the file stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLERS:
            yield f"{node.lineno}: from {node.module}"
        if isinstance(node, ast.Constant) and node.value in UNPICKLERS - {"joblib"}:
            yield f"{node.lineno}: {node.value!r}, a module's name"
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "weights_only"):
            yield f"{node.value.lineno}: {node.arg}"
        if not isinstance(node, ast.Attribute | ast.Name) or id(node) in inner:
            continue
        parts = []
        part: ast.expr = node
        while isinstance(part, ast.Attribute):
            parts.append(part.attr)
            part = part.value
        if not isinstance(part, ast.Name):
            continue
        whole = ".".join([names.get(part.id, part.id), *reversed(parts)])
        banned = whole.split(".")[0] in UNPICKLERS and part.id in names
        if (whole in CALLS or banned) and (name, whole) not in ALLOWED:
            yield f"{node.lineno}: {whole}"


def test_no_source_unpickles() -> None:
    names = [str(path.relative_to(ROOT)) for path in FILES]
    errors = [
        f"{name}:{each}"
        for name, path in zip(names, FILES, strict=True)
        for each in refused(path.read_text(encoding="utf-8"), name)
    ]
    assert errors == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle; pickle.loads(b'')",
        "import pickle as p; p.load(f)",
        "from pickle import loads",
        "from pickle import Unpickler as U",
        "import cloudpickle; cloudpickle.loads(b'')",
        "import _pickle; x = _pickle.loads",
        "import shelve; shelve.open('x')",
        "import importlib; importlib.import_module('pickle')",
        "__import__('pickle').loads(b'')",
        "import torch; torch.load('x')",
        "import torch; torch.load('x', weights_only=True)",
        "from torch import load; load('x')",
        "import torch as t; read = t.load",
        "import numpy as np; np.load('x', allow_pickle=True)",
        "import numpy as np; np.load('x')",
        "import pandas as pd; pd.read_pickle('x')",
        "import yaml; yaml.load(text, Loader=yaml.Loader)",
        "import yaml; yaml.unsafe_load(text)",
        "from yaml import full_load; full_load(text)",
        "import pickle\ntry: pass\nexcept pickle.UnpicklingError: pass",
        "eval(text)",
        "exec(text)",
    ],
)
def test_what_would_is_found(line: str) -> None:
    assert list(refused(line, "results/reader.py"))


@pytest.mark.parametrize(
    "line",
    [
        "import yaml; yaml.safe_load(text)",
        "import yaml; yaml.compose(text, Loader=yaml.SafeLoader)",
        "import json; json.loads(text)",
        "model.eval(); self.load(text)",
        "from safetensors.torch import load; load(data)",
        "'Everything here is small, frozen and picklable'",
    ],
)
def test_what_would_not_is_left(line: str) -> None:
    assert list(refused(line, "results/reader.py")) == []


def test_what_is_allowed_is_there() -> None:
    for name, what in ALLOWED:
        source = (ROOT / name).read_text(encoding="utf-8")
        assert what in source
        assert [each for each in refused(source, "another.py") if what in each]
