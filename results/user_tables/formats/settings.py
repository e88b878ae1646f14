"""What a run was configured with, where a tool keeps it: in a file beside the log, or in the name
of its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.formats.lines import flat, text_of
from results.user_tables.names import AXES

FILES = (
    *("params.json", "hparams.yaml", "config.json", "config.yaml", "args.json", "ds_config.json"),
    *(".hydra/config.yaml", "training_args.json"),
)
_AROUND = re.compile(r"^.*_\d{5}_\d+_(?=\w+=)|_\d{4}(-\d\d){2}_\d\d(-\d\d){2}$")
"""What Ray Tune puts around the settings that it names the folder of a trial by."""
_EQUAL = re.compile(r"([A-Za-z_][\w.]*)=([^=,]+)")


def _of_yaml(text: str) -> Any:
    """YAML, with objects of Python as nothing.

    Raises:
        ValueError: it is none.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("", lambda *_: None)
    try:
        return Loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def beside(folder: Path) -> dict[str, Any]:
    """The settings in the files of a run's folder: ``config.NAME`` and the value.

    Raises:
        ResultsError: a file that is not JSON or YAML.
    """
    settings: dict[str, Any] = {}
    for name in FILES:
        file = folder / name
        if not file.is_file():
            continue
        try:
            text = text_of(file)
            read = json.loads(text) if file.suffix == ".json" else _of_yaml(text)
        except ValueError as error:
            raise ResultsError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
        if isinstance(read, dict):
            # W&B's config.yaml: {"lr": {"value": 0.1}, "wandb_version": 1}.
            plain = {
                key: each["value"] if isinstance(each, dict) and "value" in each else each
                for key, each in read.items()
            }
            settings |= {f"config.{key}": value for key, value in flat(plain).items()}
    return settings


def of_name(path: Path) -> dict[str, Any]:
    """The settings that folders and a file are named by: ``batch_size=64/lr=0.1,seed=3.csv``."""
    settings: dict[str, Any] = {}
    for part in (*path.parent.parts, path.stem if path.suffix[1:].isalpha() else path.name):
        pieces = [_EQUAL.fullmatch(piece) for piece in _AROUND.sub("", part).split(",")]
        for match in pieces if all(pieces) else ():
            if match:
                axis = match[1] in AXES
                settings[match[1] if axis else f"config.{match[1]}"] = match[2]
    return settings
