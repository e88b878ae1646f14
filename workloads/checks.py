"""Whether a workload keeps its contract: each check raises one line that says what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from workloads.base import Batch, Classification, Workload
from workloads.errors import WorkloadError, nearest
from workloads.generated.split import GeneratedSplit
from workloads.text.tokens import TokenStream
from workloads.user_code.local_imports import is_installed, is_packaged
from workloads.user_code.named_batch import by_names

SPLITS = ("train", "validation", "test")
_ALIASES = {"val": "validation", "valid": "validation", "dev": "validation", "eval": "validation"}
"""What other programs call the splits."""
_LOWER = ("error", "loss", "cross_entropy", "entropy", "perplexity", "mse", "mae", "rmse")
_HIGHER = ("accuracy", "precision", "recall", "f1", "auc", "bleu", "r2")


def check_target(target: str, place: str) -> None:
    """A target must be METRIC < VALUE, on a metric of a split, in the direction that is better.

    Raises:
        WorkloadError: it does not; ``place`` says whose target it is.
    """
    metric_column, sign, value = _parts(target)
    if not sign or not metric_column.isidentifier() or not _is_number(value):
        raise WorkloadError(
            f"target {target!r} of {place} is not METRIC < VALUE or METRIC > VALUE",
            hint=f"for example: {column_name(metric_column) or 'validation_error'} "
            f"{sign or '<'} {value if _is_number(value) else '0.05'}",
        )
    split, _, metric = metric_column.partition("_")
    if split not in SPLITS or not metric:
        raise WorkloadError(
            f"target {target!r} of {place} names no split",
            hint=f"write {column_name(metric_column)}: a metric of train, validation or test",
        )
    wrong = (sign == ">" and metric.endswith(_LOWER)) or (sign == "<" and metric.endswith(_HIGHER))
    if wrong:
        raise WorkloadError(
            f"target {target!r} of {place} has the wrong direction",
            hint=f"{metric} is better when {'lower' if sign == '>' else 'higher'}: reverse the "
            f"sign",
        )


def column_name(name: str) -> str:
    """The column of a metric that another program calls ``name``: ``val/loss`` is
    ``validation_loss``, ``acc`` ``validation_acc``; empty where nothing of a name is left."""
    parts = [part for part in re.split(r"\W+|_", name) if part]
    split = _ALIASES.get(parts[0].lower(), parts[0].lower()) if parts else ""
    if split in SPLITS and len(parts) > 1:
        return "_".join([split, *parts[1:]])
    return "_".join(["validation", *parts]) if parts and split not in SPLITS else ""


def check_splits(data: Any, workload: Workload) -> dict[str, Batch | TokenStream | Dataset[Any]]:
    """What ``workload.data()`` returned, checked; a TensorDataset becomes its tensors.

    Raises:
        WorkloadError: not a mapping, no train split or none for the target, an unknown split, or
            one that is empty, ragged, or neither tensors nor a map-style Dataset. The train split
            alone may be a GeneratedSplit or an IterableDataset.
    """
    if not isinstance(data, Mapping):
        message = f"data() of {workload.name} returned a {type(data).__name__}"
        raise WorkloadError(message, hint='return {"train": (x, y), "validation": (x, y)}')
    for split in data:
        if split not in SPLITS:
            message = f"data() of {workload.name} has an unknown split {split!r}"
            raise WorkloadError(message, hint=nearest(str(split), SPLITS))
    for split in ("train", workload.target.strip().partition("_")[0]):
        if split not in data:
            raise WorkloadError(
                f"data() of {workload.name} has no split {split!r}",
                hint=f"its target is {workload.target}" if split != "train" else None,
            )
    return {split: _split(data[split], split, workload) for split in SPLITS if split in data}


def length_of(data: Any) -> int | None:
    """Examples of a split; ``None`` of one that has no end, or no known length."""
    if isinstance(data, tuple):
        return len(data[0])
    if isinstance(data, GeneratedSplit):
        return None
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def _split(value: Any, split: str, workload: Workload) -> Batch | TokenStream | Dataset[Any]:
    place = f"split {split!r} of {workload.name}"
    if hasattr(value, "iloc"):  # value[0] of pandas is a column
        raise WorkloadError(
            f"{place} is a pandas {type(value).__name__}",
            hint="give tensors: (torch.as_tensor(frame[names].to_numpy()), labels)",
        )
    value = by_names(value, workload, place)
    if isinstance(value, GeneratedSplit | IterableDataset):
        return _endless_or_iterable(value, split, place)
    if isinstance(value, TensorDataset):
        value = value.tensors
    if isinstance(value, TokenStream):
        return _stream(value, place)
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, tuple):
        return _tensors(value, place)
    if isinstance(value, Mapping):
        raise WorkloadError(
            f"{place} is a dict, of {', '.join(map(repr, list(value)[:4])) or 'nothing'}",
            hint="name its parts, batch_names = ('x', 'y'), or give them as a tuple, (x, y)",
        )
    if not (
        hasattr(value, "__len__") and hasattr(value, "__getitem__") and not torch.is_tensor(value)
    ):
        raise WorkloadError(
            f"{place} is a {type(value).__name__}",
            hint="give a tuple of tensors, (x, y), or a map-style Dataset (with its length)",
        )
    if len(value) == 0:
        raise WorkloadError(f"{place} is empty")
    dataset: Dataset[Any] = value
    return dataset


_TOKEN_TYPES = (torch.uint8, torch.uint16, torch.int32, torch.int64)


def _stream(value: TokenStream, place: str) -> TokenStream:
    tokens = value.tokens
    if not torch.is_tensor(tokens) or tokens.dim() != 1 or tokens.dtype not in _TOKEN_TYPES:
        kind = f"{tokens.dtype}, {tokens.dim()}-D" if torch.is_tensor(tokens) else None
        raise WorkloadError(
            f"{place}: its tokens are {kind or f'a {type(tokens).__name__}'}",
            hint="give one long tensor of token ids: uint8, uint16, int32 or int64",
        )
    if value.context < 1 or len(value) == 0:
        raise WorkloadError(
            f"{place} has {len(tokens):,} tokens, too few for a context of {value.context:,} and "
            "the token that follows it",
            hint="a shorter context, or more text",
        )
    return value


def _endless_or_iterable(
    value: GeneratedSplit | IterableDataset[Any], split: str, place: str
) -> Batch | Dataset[Any]:
    if split != "train":
        raise WorkloadError(
            f"{place} is a {type(value).__name__}: evaluation needs a split with an end",
            hint="give a fixed sample of it as tensors, or a map-style Dataset",
        )
    if isinstance(value, IterableDataset):
        if length_of(value) == 0:
            raise WorkloadError(f"{place} is empty")
        return value
    several = value.examples(torch.arange(3))
    if not isinstance(several, tuple):
        message = f"{place}: examples() returned a {type(several).__name__}"
        raise WorkloadError(message, hint="return a tuple of tensors, (x, y)")
    if len(_tensors(several, place)[0]) != 3:
        raise WorkloadError(
            f"{place}: examples() returned {len(several[0])} for 3 indices",
            hint="the leading dimension of each tensor is that of the indices",
        )
    alone = value.examples(torch.tensor([1]))
    for i, (whole, part) in enumerate(zip(several, alone, strict=True)):
        if whole[1].shape != part[0].shape or not torch.allclose(whole[1], part[0], equal_nan=True):
            raise WorkloadError(
                f"{place}: part {i} of an example depends on more than its index",
                hint="compute everything from the indices: torch's generators go on from call to "
                "call",
            )
    return value


def _tensors(value: tuple[Any, ...], place: str) -> Batch:
    if not value:
        raise WorkloadError(f"{place} is empty")
    for i, tensor in enumerate(value):
        if not torch.is_tensor(tensor) or tensor.dim() == 0:
            kind = "a number" if torch.is_tensor(tensor) else f"a {type(tensor).__name__}"
            raise WorkloadError(
                f"{place}: its part {i} is {kind}",
                hint="give tensors whose leading dimension is the examples (torch.as_tensor)",
            )
    lengths = [len(tensor) for tensor in value]
    if len(set(lengths)) > 1:
        raise WorkloadError(f"{place}: its tensors have {' and '.join(map(str, lengths))} examples")
    if lengths[0] == 0:
        raise WorkloadError(f"{place} is empty")
    return value


def check_model(model: Any, workload: Workload) -> torch.nn.Module:
    """What ``workload.model()`` returned.

    Raises:
        WorkloadError: it is no module, or not all of its numbers are real.
    """
    if isinstance(model, torch.nn.Module):
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_complex():
                hint = "keep torch.view_as_real(w), and torch.view_as_complex(w) in forward"
                why = "is complex, and would lose its imaginary part"
                raise WorkloadError(f"{name} of the model of {workload.name} {why}", hint=hint)
        return model
    is_class = isinstance(model, type)
    raise WorkloadError(
        f"model() of {workload.name} returned "
        + (f"the class {model.__name__}" if is_class else f"a {type(model).__name__}"),
        hint=f"return {model.__name__}(…)" if is_class else "return a torch.nn.Module",
    )


def check_forward(workload: Workload, model: torch.nn.Module, batch: Batch) -> tuple[Any, Any]:
    """The output of a model for a batch of the workload's own data, and its metrics.

    Raises:
        WorkloadError: the two do not fit together, by an error that is not raised in a user's file
            (those pass unchanged).
    """
    try:
        output = workload.forward(model, batch)
        check_labels(output, batch, workload)
        return output, workload.metrics(output, batch)
    except WorkloadError:
        raise
    except Exception as error:
        if _is_users(error.__traceback__):
            raise
        parts = " and ".join(f"{part.dtype} {tuple(part.shape)}" for part in batch)
        whole = any(not part.is_floating_point() for part in batch[:1])
        raise WorkloadError(
            f"the model of workload {workload.name} cannot take a batch of its data, "
            f"{parts.replace('torch.', '')}: {type(error).__name__}: {error}",
            hint="data() gives what model() takes"
            + (": x.float() / 255 of pixels" if whole else ""),
        ) from error


def check_labels(output: Any, batch: Any, workload: Workload) -> None:
    """Of a classification whose data are tensors: each label must be the index of an output.

    Raises:
        WorkloadError: one is not.
    """
    if not isinstance(workload, Classification) or not torch.is_tensor(output):
        return
    if not isinstance(batch, tuple) or len(batch) < 2:
        return
    labels, classes = batch[1], output.shape[-1]
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise WorkloadError(
            f"workload {workload.name} has the label {wrong}, and its model {classes} outputs: "
            f"labels go from 0 to {classes - 1}",
            hint="one output a class, and classes that are counted from 0",
        )


def _is_users(trace: TracebackType | None) -> bool:
    """Whether an error passed through code that is neither ours nor of an installed package."""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.suffix == ".py" and not (is_packaged(file) or is_installed(file.resolve())):
            return True
        trace = trace.tb_next
    return False


def check_per_example(values: Any, batch_size: int, what: str, workload: Workload) -> None:
    """``values`` must be a tensor of shape (batch_size,).

    Raises:
        WorkloadError: it is not; ``what`` is ``loss`` or ``metric 'error'``.
    """
    shape = tuple(values.shape) if torch.is_tensor(values) else None
    if shape == (batch_size,):
        return
    if isinstance(values, (int, float)) or (shape == () and batch_size != 0):
        raise WorkloadError(
            f"{what} returned one number (a mean?): return one value an example, "
            f'reduction="none" (workload {workload.name})'
        )
    got = f"shape {shape}" if shape is not None else f"a {type(values).__name__}"
    message = f"{what} of workload {workload.name} returned {got} for {batch_size} examples"
    raise WorkloadError(message, hint=f"return one value an example: shape ({batch_size},)")


def check_metrics(metrics: Any, batch_size: int, workload: Workload) -> None:
    """``metrics`` must be a mapping of names to one value an example, or to (sum, count): of the
    batch, or of each example.

    Raises:
        WorkloadError: it is not.
    """
    if not isinstance(metrics, Mapping) or not metrics:
        raise WorkloadError(
            f"metrics() of {workload.name} returned {type(metrics).__name__ or 'nothing'}",
            hint='return a dict, for example {"error": (output.argmax(-1) != y).float()}',
        )
    for name, value in metrics.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise WorkloadError(f"metrics() of {workload.name}: {name!r} is not a metric's name")
        if isinstance(value, tuple):
            _check_sum(name, value, batch_size, workload)
        else:
            check_per_example(value, batch_size, f"metric {name!r}", workload)


def check_outputs(output: Any, batch: Batch, workload: Workload) -> None:
    """Where a workload has metrics of a whole split: its outputs and targets can be gathered.

    Raises:
        WorkloadError: the output is not one tensor with a row an example, or there is no target.
    """
    if not workload.measures_split:
        return
    if not torch.is_tensor(output) or output.shape[:1] != batch[0].shape[:1]:
        got = f"shape {tuple(output.shape)}" if torch.is_tensor(output) else type(output).__name__
        raise WorkloadError(
            f"forward() of {workload.name} returned {got} for {len(batch[0])} examples, of which "
            "split_metrics cannot be computed",
            hint="return one tensor with a row for each example",
        )
    if len(batch) < 2:
        message = f"batches of {workload.name} have no targets, which split_metrics needs"
        raise WorkloadError(message, hint="give (x, y)")
    check_split_metrics(workload.split_metrics(output.cpu(), batch[1].cpu()), (), workload)


def check_split_metrics(metrics: Any, others: Iterable[str], workload: Workload) -> None:
    """``metrics`` must be a mapping of names, none of which is in ``others``, to numbers.

    Raises:
        WorkloadError: it is not.
    """
    place = f"split_metrics() of {workload.name}"
    if not isinstance(metrics, Mapping):
        raise WorkloadError(f"{place} returned a {type(metrics).__name__}", hint="return a dict")
    for name, value in metrics.items():
        if not isinstance(name, str) or not name.isidentifier() or name in set(others):
            problem = "also a metric of metrics()" if name in set(others) else "not a metric's name"
            raise WorkloadError(f"{place}: {name!r} is {problem}")
        if not isinstance(value, (int, float)) and getattr(value, "shape", None) != ():
            raise WorkloadError(
                f"{place}: {name!r} is a {type(value).__name__}", hint="return one number"
            )


def _check_sum(name: str, value: tuple[Any, ...], batch_size: int, workload: Workload) -> None:
    numbers = all(isinstance(part, (int, float, Tensor)) for part in value)
    shapes = {tuple(part.shape) if torch.is_tensor(part) else () for part in value}
    if not numbers or len(value) != 2 or shapes not in ({()}, {(batch_size,)}):
        raise WorkloadError(
            f"metric {name!r} of workload {workload.name} is a tuple, but not (sum, count)",
            hint="two numbers of the batch, or two tensors with a value for each example",
        )


def target_metric(workload: Workload) -> tuple[str, str]:
    """The split and the metric of the workload's own target."""
    split, _, metric = _parts(workload.target)[0].partition("_")
    return split, metric


def _parts(target: str) -> tuple[str, str, str]:
    """The metric's column, the sign and the value of a target, as they are written."""
    sign = ">" if ">" in target else "<"
    column, sign, value = target.partition(sign)
    return column.strip(), sign, value.strip()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
