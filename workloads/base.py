"""A workload: data set, model, loss, metrics and target, and nothing of how it is trained."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, dataclass_transform

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from workloads.errors import WorkloadError
from workloads.fields import coerce, plain
from workloads.registry import name_of

Batch = tuple[Tensor, ...]
"""Tensors whose leading dimension is the examples."""

_FACTS = ("target", "dataset", "model_name", "example_unit", "tokens_per_example", "version")


class _WorkloadType(type):
    """Checks fields before an object exists, so that every way to make one has the same errors."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        if args:
            raise WorkloadError(f"workload {cls.__name__} takes its fields by name")
        return super().__call__(**coerce(cls, values))


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload(metaclass=_WorkloadType):
    """Subclass it with ``target``, ``data``, ``model``, ``loss`` and ``metrics``.

    A subclass is a frozen keyword-only dataclass by itself: an annotated attribute is a field,
    which an experiment may sweep. Objects are small and cheap: ``data`` alone may be expensive.
    ``forward``, ``loss`` and ``metrics`` may run under ``torch.func.vmap`` and ``grad``: values of
    tensors decide no Python branch there, and ``.item()`` is not called.
    """

    target: ClassVar[str]
    """``"METRIC < VALUE"`` or ``"METRIC > VALUE"``, METRIC being ``<split>_<metric>``."""
    dataset: ClassVar[str]
    """What rows of results call the data set; the class name unless said."""
    model_name: ClassVar[str]
    """What rows of results call the model; the class name unless said."""
    example_unit: ClassVar[str] = "example"
    tokens_per_example: ClassVar[int | None] = None
    version: ClassVar[str | None] = None
    """Pins the identity of this very class: its file is not hashed, and may be edited freely."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls)
        for fact in _FACTS:  # `target: str = …` is a fact all the same, never a field
            if fact in annotations:
                annotations[fact] = ClassVar[Any]
        cls.__annotations__ = annotations
        for fact in ("dataset", "model_name"):
            if not hasattr(cls, fact) and cls.__module__ != __name__:
                setattr(cls, fact, cls.__name__)
        for field in annotations:
            if hasattr(Workload, field) and field not in _FACTS:
                raise WorkloadError(
                    f"{cls.__name__}: {field!r} cannot be a field, it has a meaning"
                )
        try:
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        except ValueError as error:  # a mutable default
            raise WorkloadError(
                f"{cls.__name__}: {error}", hint="write a tuple instead of a list"
            ) from None

    @property
    def name(self) -> str:
        """The registered name; of a workload of one's own, its class name."""
        return name_of(type(self))

    @property
    def fields(self) -> dict[str, Any]:
        """All fields with their values, as JSON has them."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def data(self) -> Mapping[str, Batch | Dataset[Any]]:
        """The splits ``"train"``, ``"validation"`` and perhaps ``"test"``.

        A split is a tuple of tensors with one leading dimension (put on the device whole) or a
        map-style Dataset of such tuples without it (streamed). The caller changes none of them.
        """
        raise WorkloadError(f"workload {self.name} has no method data(self)")

    def model(self) -> nn.Module:
        """A new model, initialized from torch's global generator (which the engine seeds)."""
        raise WorkloadError(f"workload {self.name} has no method model(self)")

    @property
    def augments(self) -> bool:
        """Whether ``augment`` changes anything; a training step that draws nothing is cheaper."""
        return type(self).augment is not Workload.augment

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """Random changes of a training batch as it is stored, before ``transform``, on the device.

        Every random number comes from ``generator``, which may live on another device.
        """
        return batch

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """From stored to trained on (uint8 to float, normalizing): deterministic, on the device.

        A training batch has been through ``augment`` before. Floating-point results are float32;
        an engine in another precision casts them.
        """
        return batch

    def parameter_groups(
        self,
        named_parameters: Mapping[str, Tensor],  # noqa: ARG002
    ) -> Mapping[str, Mapping[str, float]]:
        """Options of some parameters: pattern of names -> metaparameters of the optimizer.

        ``{"*.bias": {"weight_decay": 0}}``: no decay for biases. ``learning_rate_factor``
        multiplies the learning rate. Of several patterns that match, the first counts; an option
        that the optimizer does not have is passed over.
        """
        return {}

    def forward(self, model: nn.Module, batch: Batch) -> Any:
        """What ``loss`` and ``metrics`` get as ``output``."""
        return model(batch[0])

    def loss(self, output: Any, batch: Batch) -> Tensor:  # noqa: ARG002
        """What training minimizes the mean of: shape (B,), one value an example."""
        raise WorkloadError(f"workload {self.name} has no method loss(self, output, batch)")

    def metrics(
        self,
        output: Any,  # noqa: ARG002
        batch: Batch,  # noqa: ARG002
    ) -> Mapping[str, Tensor | tuple[Tensor | float, int]]:
        """Out-of-sample metrics: shape (B,), one value an example, or (sum, count), not a mean."""
        raise WorkloadError(f"workload {self.name} has no method metrics(self, output, batch)")


class Classification(Workload):
    """One label an example: batches are (x, y), outputs are logits of shape (B, K).

    The loss is the cross entropy with label smoothing as Shallue et al. 2019 have it: the right
    class has the weight 1-ε, each of the K-1 others ε/(K-1). Metrics: ``error`` (0 or 1 an example)
    and ``cross_entropy`` (without smoothing).
    """

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Smoothed cross entropy in nats, shape (B,)."""
        right = F.cross_entropy(output, batch[1].long(), reduction="none")
        epsilon = self.label_smoothing
        if isinstance(epsilon, float) and epsilon == 0.0:  # a tensor where an engine traces it
            return right
        every = torch.logsumexp(output, -1) * output.shape[-1] - output.sum(-1)
        return (1 - epsilon) * right + epsilon / (output.shape[-1] - 1) * (every - right)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error`` and ``cross_entropy``, each of shape (B,)."""
        labels = batch[1].long()
        return {
            "error": (output.argmax(-1) != labels).to(output.dtype),
            "cross_entropy": F.cross_entropy(output, labels, reduction="none"),
        }
