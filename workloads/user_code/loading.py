"""Load a workload by name, by class or from a user's file."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads import registry
from workloads.base import Workload
from workloads.checks import check_target
from workloads.errors import WorkloadError, nearest
from workloads.user_code.local_imports import PACKAGED, imports, local_modules
from workloads.user_code.user_files import find_file, import_file


def load(
    spec: str | type[Workload] | Workload,
    fields: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
) -> Workload:
    """A workload with its fields set.

    Args:
        spec: a packaged name, ``file.py:Class`` (``file.py`` alone where it holds one workload),
            a class, or a workload whose other fields are kept.
        fields: values of its fields.
        base: the folder that a relative file starts from; the current one unless given.

    Raises:
        WorkloadError: an unknown name, file, class or field, or a method or target is missing.
            What the user's file raises while it is imported passes unchanged.
    """
    fields = dict(fields or {})
    if isinstance(spec, Workload):
        return _placed(spec.with_fields(fields), base or spec.experiment_folder)
    cls = spec if isinstance(spec, type) else _find(spec, Path(base or "."))
    if not issubclass(cls, Workload):
        raise WorkloadError(f"{cls.__name__} is not a workload", hint=_DERIVE)
    for method in ("data", "model", "loss", "metrics"):
        if getattr(cls, method) is getattr(Workload, method):
            raise WorkloadError(
                f"workload {cls.__name__} has no method {method!r}",
                hint="Classification brings loss and metrics; data(self) and model(self) are yours",
            )
    target = getattr(cls, "target", None)
    if not isinstance(target, str):
        raise WorkloadError(
            f"workload {cls.__name__} states no target",
            hint='write for example: target = "validation_error < 0.05"',
        )
    check_target(target, f"workload {cls.__name__}")
    return _placed(cls(**fields), base)


def _placed(workload: Workload, base: str | Path | None) -> Workload:
    """``workload``, whose relative paths start from ``base``."""
    if base is not None:
        object.__setattr__(workload, "_experiment_folder", str(base))
    return workload


_DERIVE = "derive it from batchscale.Workload or batchscale.Classification"


def _find(spec: str, base: Path) -> type:
    path, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    if not path.endswith(".py"):
        return registry.get(spec)
    file = find_file(path, base)
    if file is None:
        folder = (base / path).parent
        siblings = [each.name for each in folder.glob("*.py")] if os.path.isdir(folder) else []
        name = Path(path).name
        hint = nearest(name, siblings) if siblings else "a path is relative to its experiment file"
        raise WorkloadError(f"no file {path!r} in {base.resolve()}", hint=hint)
    _refuse_script(file, path, name)
    module = import_file(file)
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Workload)
        and value.__module__ == module.__name__
    }
    if not name:
        if len(classes) != 1:
            raise WorkloadError(
                f"{path} holds {len(classes)} workloads", hint=f"write {path}:CLASS"
            )
        return next(iter(classes.values()))
    cls = vars(module).get(name)
    if cls is None:
        raise WorkloadError(f"{path} has no class {name!r}", hint=nearest(name, classes))
    if not (isinstance(cls, type) and issubclass(cls, Workload)):
        raise WorkloadError(f"{name!r} in {path} is not a workload", hint=_DERIVE)
    return cls


def _refuse_script(file: Path, path: str, name: str) -> None:
    """A file that imports nothing of this project, itself or by modules beside it, and does not
    contain the name, defines no such workload: it is not run to learn that."""
    content = file.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return  # the import itself says what is wrong, and where
    if name and name.encode() in content:
        return
    for source in (file, *local_modules(file).values()):
        for each in imports(source.read_bytes()):
            if each.level == 0 and each.module.partition(".")[0] in PACKAGED:
                return
    raise WorkloadError(
        f"{path} defines no workload: it is a script, and was not run",
        hint=nearest(
            name,
            [each.name for each in tree.body if isinstance(each, ast.FunctionDef)],
            "a workload is a class of batchscale's; batchscale new FILE.py writes one. Your own "
            "program: batchscale new --program FILE.py",
        ),
    )
