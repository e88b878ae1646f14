"""``batchscale new``: a workload that runs and an experiment for it, written side by side."""

from __future__ import annotations

from pathlib import Path

from batchscale.output.errors import CommandError
from results.storage.save import destination
from workloads.template import template


def write(file: Path) -> tuple[Path, Path]:
    """Write ``FILE.py`` and ``FILE.yaml``; existing files are not changed.

    Raises:
        CommandError: one of them exists already, the folder does not exist, or it is not a ``.py``
            file.
    """
    file = destination(file)
    if file.suffix != ".py":
        raise CommandError(f"{file} is not a .py file", hint=f"batchscale new {file.stem}.py")
    beside = file.with_suffix(".yaml")
    for path in (file, beside):
        if path.exists():
            raise CommandError(
                f"{path} exists already", hint="nothing was written; choose another name"
            )
    if not file.absolute().parent.is_dir():
        raise CommandError(f"cannot write {file}: there is no folder {file.parent}")
    workload, experiment = template(file.name)
    for path, text in ((file, workload), (beside, experiment)):
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    return file, beside
