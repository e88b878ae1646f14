"""Read an experiment: a YAML file, one that comes with the package, a mapping, or keywords."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.config import keywords, packaged, searching
from experiments.config.experiment import LONGEST_NAME, Experiment
from experiments.config.inherit import KEY, inherit, labels, leave_out
from experiments.config.overrides import override
from experiments.config.packaged import names
from experiments.config.plain import check_plain
from experiments.config.text_file import UnreadableError, read_text
from experiments.config.yaml_lines import Places, read
from experiments.errors import ExperimentError

__all__ = ["Experiment", "from_keywords", "load", "names", "parse"]


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment; the data set is not read yet.

    Args:
        source: the path of a YAML file (``.yaml``, ``.yml``, or with a ``/``), the name of one that
            comes with the package (``digits``), or a file's content as a mapping.
        overrides: ``key=value`` each, as ``--set`` takes them: ``grid.batch_size=1..64``.

    Raises:
        ExperimentError: what cannot be read, or a key or value that cannot be; with its line.
        WorkloadError: the workload itself is wrong.
    """
    if isinstance(source, Mapping):
        check_plain(source, Places())
        data = copy.deepcopy(dict(source))
        return _searchable(_build(data, Places(), overrides, base=Path.cwd(), name=None))
    file = Path(source)
    if isinstance(source, str) and file.suffix not in (".yaml", ".yml") and "/" not in source:
        text = packaged.text(source)
        here = Path.cwd()
        return _searchable(parse(text, f"{source}.yaml", overrides, base=here, name=source))
    try:
        text = read_text(file)
    except FileNotFoundError:
        hint = f"experiments that come with the package: {', '.join(names())}"
        raise ExperimentError(f"no experiment file {str(source)!r}", hint=hint) from None
    except UnreadableError as error:
        raise ExperimentError(f"{source} cannot be read: {error}") from None
    folder = file.expanduser().resolve().parent
    return _searchable(parse(text, str(source), overrides, base=folder, name=file.stem))


def parse(
    text: str,
    source: str = "experiment.yaml",
    overrides: Sequence[str] = (),
    *,
    base: Path | None = None,
    name: str | None = None,
) -> Experiment:
    """Read an experiment's YAML text.

    Its method of search need not be installed: a recorded experiment is read, not searched.

    Args:
        source: what errors call it.
        base: the folder that its relative paths start from; the current one unless given.
        name: the experiment's, where the text does not say it.

    Raises:
        ExperimentError: it is not an experiment.
        WorkloadError: the workload itself is wrong.
    """
    data, places = read(text, source)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ExperimentError(
            f"{source}: not a mapping of keys to values", hint="begin with: workload: digits-mlp"
        )
    return _build(data, places, overrides, base=base or Path.cwd(), name=name)


def from_keywords(**values: Any) -> Experiment:
    """An experiment of Python's keywords.

    ``from_keywords(workload=MyModel, optimizer=["sgd"], batch_size="8..1024", trials=16)``: keys of
    the file, of its grid, fields of the workload and metaparameters (a value or a range) alike.
    ``workload`` may be a class or an object, and so may an optimizer be a class.

    Raises:
        ExperimentError: an unknown keyword, a value that cannot be, a class in no file.
        WorkloadError: the workload itself is wrong.
    """
    data, base = keywords.mapping(values, Experiment.model_fields)
    return _searchable(_build(data, Places(), (), base=base, name=None))


def _searchable(experiment: Experiment) -> Experiment:
    searching.check_installed(experiment)
    return experiment


def _build(
    data: dict[str, Any],
    places: Places,
    overrides: Sequence[str],
    *,
    base: Path,
    name: str | None,
) -> Experiment:
    data, places = inherit(data, places, base)
    before = labels(data)
    override(data, overrides, places)
    leave_out(data, before)
    check_plain(data, places)
    if KEY in data:
        raise places.error((KEY,), f"{KEY} is said in a file, not here", "sweep a file that does")
    data = {key: value for key, value in data.items() if value is not None}
    if "name" not in data:
        said = name or re.split(r"[:/]", str(data.get("workload", "")))[-1]
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", said).lstrip("._-")
        data["name"] = plain[:LONGEST_NAME] or "experiment"
    return Experiment.checked(data, places, str(base))
