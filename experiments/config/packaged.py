"""The experiment files that come with the package, by name."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from experiments.errors import ExperimentError, nearest


def _folder() -> Traversable:
    return resources.files("experiments").joinpath("files")


def names() -> dict[str, str]:
    """Name -> what it is, in one line (the file's first comment)."""
    found = {}
    for file in sorted(_folder().iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            found[file.name.removesuffix(".yaml")] = first.lstrip("# ")
    return found


def text(name: str) -> str:
    """The file of that name.

    Raises:
        ExperimentError: there is none.
    """
    if name not in names():
        raise ExperimentError(
            f"no experiment is called {name!r}",
            hint=f"{nearest(name, names())}; a file of your own ends in .yaml",
        )
    return _folder().joinpath(f"{name}.yaml").read_text(encoding="utf-8")
