"""Weights in a safetensors file, and a model that gets them: nothing is unpickled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from experiments.errors import ExperimentError, nearest

_PICKLED = {".pth", ".pt", ".bin", ".ckpt", ".pkl", ".tar"}
_MOST = 4
"""Names that a message lists."""


_PACKAGED = Path(__file__).with_name("weights")


def packaged_weights() -> dict[str, Path]:
    """The files that come with the package, by their names in an experiment."""
    return {file.stem: file for file in sorted(_PACKAGED.glob("*.safetensors"))}


class WeightsFile(NamedTuple):
    """The contents of a file."""

    tensors: dict[str, Tensor]
    about: Mapping[str, str]
    """What ``trial --save`` writes beside the weights: ``workload``, ``fields`` (JSON) …"""


def refuse_pickled(path: str) -> None:
    """Refuse what is not a safetensors file, by its name, nor packaged weights.

    Raises:
        ValueError: it is not called so; with how to convert it.
    """
    suffix = Path(path).suffix
    if path in packaged_weights():
        return
    if suffix in _PICKLED:
        raise ValueError(
            f"a {suffix} file holds pickled objects, which are not loaded; convert it once: "
            "python -c \"import torch, safetensors.torch as s; s.save_file(torch.load('"
            f"{Path(path).name}', weights_only=True), '{Path(path).stem}.safetensors')\""
        )
    if suffix != ".safetensors":
        known = ", ".join(packaged_weights())
        raise ValueError(
            f"weights are read from a .safetensors file, or are packaged ones: {known}"
        )


def read_weights(file: Path, owner: str) -> WeightsFile:
    """
    Args:
        owner: what messages call whoever reads it.

    Raises:
        ExperimentError: it is not a whole safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            return WeightsFile(tensors, dict(content.metadata() or {}))
    except (SafetensorError, OSError) as error:
        raise ExperimentError(
            f"{owner}: {file.name} is not a whole safetensors file ({error})",
            hint="batchscale trial … --save FILE.safetensors writes one",
        ) from None


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    owner: str,
    *,
    partial: bool = False,
    new_head: bool = False,
) -> list[str]:
    """Give the parameters and buffers of ``model`` the values of ``weights``, by name.

    Args:
        owner: what messages call whoever does so.
        partial: whether names that only one of both has are left out.
        new_head: whether the parameters of one module that differ in their first dimension, the
            number of outputs, stay as they are.

    Returns:
        The names of ``model`` and ``weights`` that were left out, in alphabetical order.

    Raises:
        ExperimentError: names or shapes that do not match.
    """
    state = model.state_dict()
    missing, unknown = sorted(state.keys() - weights.keys()), sorted(weights.keys() - state.keys())
    if not partial and (missing or unknown):
        parts = [(f"the file lacks {_names(missing)}", missing)]
        parts += [(f"the model lacks {_names(unknown)}", unknown)]
        raise ExperimentError(
            f"{owner}: {', and '.join(text for text, names in parts if names)}",
            hint=_hint(missing, unknown, state),
        )
    common = sorted(state.keys() & weights.keys())
    differing = [name for name in common if state[name].shape != weights[name].shape]
    heads = [n for n in differing if new_head and state[n].shape[1:] == weights[n].shape[1:]]
    wrong = [name for name in differing if name not in heads]
    if wrong:
        name = wrong[0]
        raise ExperimentError(
            f"{owner}: {name} is {_shape(weights[name])} in the file and {_shape(state[name])} in "
            f"the model{_others(wrong[1:])}",
            hint="head: new leaves out layers with another number of outputs"
            if not new_head
            else "the file is of a model of another size",
        )
    modules = sorted({name.rpartition(".")[0] for name in heads})
    if len(modules) > 1:
        raise ExperimentError(
            f"{owner}: {_names(modules)} have other shapes than in the file, and a head is one "
            "layer",
            hint="the file is of a model of another size",
        )
    left_out = sorted({*missing, *unknown, *heads})
    if len(common) == len(heads):
        raise ExperimentError(
            f"{owner}: nothing in the file is of this model, which has {_names(sorted(state))}",
            hint="a file of the same model",
        )
    with torch.no_grad():
        for name in common:
            if name not in heads:
                state[name].copy_(weights[name])
    return left_out


def _hint(missing: Collection[str], unknown: Collection[str], state: Mapping[str, Tensor]) -> str:
    if unknown and missing:
        close = nearest(next(iter(unknown)), state)
        return f"{close} {{partial: true}} loads the others"
    return "{partial: true} loads the others"


def _names(names: Collection[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return f"{', '.join(listed[:_MOST])}{more}"


def _others(names: Collection[str]) -> str:
    return f"; so do {_names(names)} differ" if names else ""


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "a number"
