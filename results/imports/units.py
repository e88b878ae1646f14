"""What a reference convergence point counts in: samples, tokens, steps or epochs.

The files of mlcommons/logging call every number "Epochs to converge", whatever it is. The unit
depends on the benchmark, of two benchmarks on the version too. Sizes that turn epochs and tokens
into examples are not in those files: each says where it is from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Unit = Literal["epoch", "sample", "token", "step"]
UNITS: tuple[Unit, ...] = get_args(Unit)

_UNITS: Mapping[str, Unit] = {
    "bert": "sample",
    "cosmoflow": "epoch",
    "deepcam": "epoch",
    "deepseekv3_671b": "sample",
    "dlrm": "epoch",
    "dlrm_dcnv2": "epoch",
    "flux1": "sample",
    "gnn": "epoch",
    "gpt3": "token",
    "gpt_oss_20b": "sample",
    "llama2_70b_lora": "sample",
    "llama31_405b": "sample",
    "llama31_8b": "sample",
    "maskrcnn": "epoch",
    "oc20": "epoch",
    "openfold": "sample",
    "qwen35_397b_grpo": "sample",
    "resnet": "epoch",
    "retinanet": "epoch",
    "rgat": "epoch",
    "rnnt": "epoch",
    "ssd": "epoch",
    "stable_diffusion": "sample",
    "unet3d": "sample",
}
_UNTIL: Mapping[str, tuple[tuple[int, ...], Unit]] = {
    "stable_diffusion": ((4, 0), "step"),
    "unet3d": ((3, 1), "epoch"),
}
"""Benchmarks that counted in another unit before a version."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many examples an epoch has, or how many tokens an example."""

    count: int
    remembered: bool
    """Whether it is from memory, not from a source that was read."""


_EXAMPLES: Mapping[str, Size] = {
    "resnet": Size(count=1_281_167, remembered=False),
    "retinanet": Size(count=1_170_301, remembered=True),
    "ssd": Size(count=1_170_301, remembered=True),
    "dlrm": Size(count=4_195_197_692, remembered=True),
    "dlrm_dcnv2": Size(count=4_195_197_692, remembered=True),
}
_TOKENS: Mapping[str, Size] = {"gpt3": Size(count=2_048, remembered=True)}
_SINCE: Mapping[str, tuple[int, ...]] = {"ssd": (2, 0)}
"""Benchmarks whose size is that of another data set from a version on."""


def unit_of(benchmark: str, version: tuple[int, ...]) -> Unit | None:
    """The unit of a benchmark's "Epochs to converge"; None where it is not known."""
    until, before = _UNTIL.get(benchmark, ((), None))
    return before if before is not None and version < until else _UNITS.get(benchmark)


def size_of(benchmark: str, unit: Unit, version: tuple[int, ...]) -> Size | None:
    """Examples an epoch, or tokens an example; None where it is not known or not needed."""
    if version < _SINCE.get(benchmark, ()):
        return None
    return {"epoch": _EXAMPLES, "token": _TOKENS}.get(unit, {}).get(benchmark)
