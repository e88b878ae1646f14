"""A workload: data set, model, loss, metrics and target, and nothing of how it is trained."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, dataclass_transform, get_origin, get_type_hints

import torch
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from workloads.errors import WorkloadError, nearest
from workloads.layout_plan import LayoutPlan
from workloads.registry import name_of
from workloads.text.tokens import TokenStream
from workloads.user_code.data_files import fingerprint, listed, located
from workloads.user_code.named_batch import PLACES, named

Batch = tuple[Tensor, ...]
"""Tensors whose leading dimension is the examples."""

_FACTS = (
    *("target", "dataset", "model_name", "example_unit", "tokens_per_example", "batch_names"),
    "version",
)


class _WorkloadType(type):
    """Checks the fields before an object is made, so that every way to make one checks them."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        if args:
            raise WorkloadError(f"workload {cls.__name__} takes its fields by name")
        return super().__call__(**_checked_fields(cls, values))


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
    """``"METRIC < VALUE"`` or ``"METRIC > VALUE"``; METRIC is ``<split>_<metric>``."""
    dataset: ClassVar[str]
    """The data set's name in results; by default the class name."""
    model_name: ClassVar[str]
    """The model's name in results; by default the class name."""
    example_unit: ClassVar[str] = "example"
    tokens_per_example: ClassVar[int | None] = None
    """Tokens in an example of text. As any of these facts it may be a property: where the length of
    a sequence is a field, it is what the field says."""
    added_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that a packaged workload got after trials of it had been recorded: at its default such
    a field is not in the identity, and those trials count."""
    batch_names: ClassVar[tuple[str, ...]] = ()
    """Names of a batch's parts, where ``data`` gives dicts: ``augment`` to ``metrics`` then read
    ``batch["labels"]``, or give ``**batch`` to a model."""
    version: ClassVar[str | None] = None
    """Pins the identity of this very class: its file is not hashed, and may be edited freely."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls)
        for fact in _FACTS:  # `target: str = …` is a constant too, never a field
            if fact in annotations:
                annotations[fact] = ClassVar[Any]
        cls.__annotations__ = annotations
        # A base that brings no model (LanguageModel) leaves the name to what derives from it.
        for fact, method in (("dataset", "data"), ("model_name", "model")):
            if not hasattr(cls, fact) and getattr(cls, method) is not getattr(Workload, method):
                setattr(cls, fact, cls.__name__)
        for field in annotations:
            if hasattr(Workload, field) and field not in _FACTS:
                raise WorkloadError(
                    f"{cls.__name__}: {field!r} cannot be a field: the name is reserved"
                )
        for method, place in PLACES.items() if cls.batch_names else ():
            if method in cls.__dict__:
                setattr(cls, method, named(cls.__dict__[method], place, cls.batch_names))
        try:
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        except ValueError as error:  # a mutable default
            raise WorkloadError(
                f"{cls.__name__}: {error}", hint="write a tuple instead of a list"
            ) from None

    @property
    def name(self) -> str:
        """The name of a packaged workload; the class name of a user's."""
        return name_of(type(self))

    @property
    def fields(self) -> dict[str, Any]:
        """All fields with their values, as JSON has them."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def fields_of_identity(self, stated: Iterable[str] = ()) -> dict[str, Any]:
        """``fields`` without ``added_fields`` at their defaults, except for those in ``stated``."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        left_out = {
            name
            for name in self.added_fields.difference(stated)
            if name in defaults and getattr(self, name) == defaults[name]
        }
        return {name: value for name, value in self.fields.items() if name not in left_out}

    def with_fields(self, fields: Mapping[str, Any]) -> Workload:
        """The same with other values of some fields."""
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return type(self)(**{**kept, **fields})

    @property
    def described(self) -> dict[str, Any] | None:
        """Its identity, where that is not its class's source; ``None``: it is."""
        return None

    @property
    def experiment_folder(self) -> Path:
        """The folder that relative paths in fields start from: that of the experiment file."""
        return Path(self.__dict__.get("_experiment_folder", "."))

    def data_files(self) -> Iterable[str | Path]:
        """Paths of the user's own data files with these fields, each absolute or relative to the
        experiment file: workers get copies of them, and ``data`` opens ``local_file(path)``."""
        return ()

    def local_file(self, path: str | Path) -> Path:
        """Where this process reads one of ``data_files``.

        Raises:
            WorkloadError: it is not one of them, or there is no such file.
        """
        if str(path) not in listed(self.data_files()):
            raise WorkloadError(
                f"{str(path)!r} is not among the data_files of workload {self.name}",
                hint="return it there, so that workers get it and trials are identified by it",
            )
        return located(str(path), self.experiment_folder)

    @property
    def data_fingerprint(self) -> str | None:
        """A hash of the data, where they can change while the code stays the same: of the contents
        of ``data_files``. It is part of a trial's identity. ``None``: the name and the fields say
        it all.

        Raises:
            WorkloadError: there is no such file.
        """
        return fingerprint(self.data_files(), self.experiment_folder)

    def data(self) -> Mapping[str, Batch | TokenStream | Dataset[Any]]:
        """The splits ``"train"``, ``"validation"`` and perhaps ``"test"``.

        A split is a tuple of tensors with one leading dimension (put on the device whole), a
        ``TokenStream`` (one long text, windows of which are the examples), or a map-style Dataset
        of tuples (streamed); with ``batch_names`` dicts instead of tuples. ``"train"`` may also be
        an IterableDataset, or a GeneratedSplit. The caller changes none of them.
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
        multiplies the learning rate; ``hidden`` is False for embeddings and the output layer, which
        muon leaves to AdamW. Of several patterns that match, the first counts; an option that the
        optimizer does not have is passed over.
        """
        return {}

    def layout_plan(self) -> LayoutPlan | None:
        """How the model may be cut over several ranks; ``None``: not at all.

        Such a model can be trained by copies (``data``) and with sharded parameters (``shard``).
        """
        return None

    def forward(self, model: nn.Module, batch: Batch) -> Any:
        """The model's ``output``, for ``loss`` and ``metrics``."""
        return model(batch[0])

    def loss(self, output: Any, batch: Batch) -> Tensor:  # noqa: ARG002
        """The loss of each example, shape (B,); training minimizes its mean."""
        raise WorkloadError(f"workload {self.name} has no method loss(self, output, batch)")

    def metrics(
        self,
        output: Any,  # noqa: ARG002
        batch: Batch,  # noqa: ARG002
    ) -> Mapping[str, Tensor | tuple[Tensor | float, Tensor | int]]:
        """Out-of-sample metrics, not means: of shape (B,), one value an example, or (sum, count).

        Both of shape (B,), such as the losses and the number of an example's tokens that are no
        padding, give the mean over all tokens of a split.
        """
        raise WorkloadError(f"workload {self.name} has no method metrics(self, output, batch)")

    @property
    def measures_split(self) -> bool:
        """Whether ``split_metrics`` is defined."""
        return type(self).split_metrics is not Workload.split_metrics

    def split_metrics(
        self,
        outputs: Tensor,  # noqa: ARG002
        targets: Tensor,  # noqa: ARG002
    ) -> Mapping[str, float]:
        """Metrics of a whole split that are no mean over examples, such as average precision.

        Args:
            outputs: those of ``forward`` for the whole split, shape (N, …), on the CPU.
            targets: ``batch[1]`` of the whole split, shape (N, …), on the CPU.
        """
        return {}


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
        output = output.to(torch.promote_types(output.dtype, torch.float32))
        every = torch.logsumexp(output, -1) * output.shape[-1] - output.sum(-1)
        return (1 - epsilon) * right + epsilon / (output.shape[-1] - 1) * (every - right)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error`` and ``cross_entropy``, each of shape (B,)."""
        labels = batch[1].long()
        return {
            "error": (output.argmax(-1) != labels).to(output.dtype),
            "cross_entropy": F.cross_entropy(output, labels, reduction="none"),
        }


def _checked_fields(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` as the annotations of ``cls`` want them: a list becomes a tuple, 1 a float.

    A single value where a tuple is annotated becomes a tuple of one value. An annotation that
    cannot be read (a name that exists for type checkers only) is not checked.

    Raises:
        WorkloadError: an unknown field, a missing one, or a value of the wrong type.
    """
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in values:
        if name not in fields:
            message = f"workload {name_of(cls)} has no field {name!r}"
            raise WorkloadError(message, hint=nearest(name, fields))
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise WorkloadError(
                f"workload {name_of(cls)} needs a value for its field {name!r}",
                hint=f"give the field a default, or give {name} where the workload is named",
            )
    return {name: _checked_field(cls, name, value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """A field's value as JSON has it: tuples become lists."""
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _checked_field(cls: type, name: str, value: Any) -> Any:
    adapter, is_tuple = _adapters(cls).get(name, (None, False))
    if adapter is None:
        return value
    if is_tuple and not isinstance(value, (list, tuple)):
        value = (value,)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise WorkloadError(
            f"field {name!r} of workload {name_of(cls)} cannot be {value!r}: {reason}"
        ) from None


@functools.cache
def _adapters(cls: type) -> dict[str, tuple[TypeAdapter[Any], bool]]:
    """The check of each field, and whether it is a tuple."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError, TypeError):
        return {}
    adapters: dict[str, tuple[TypeAdapter[Any], bool]] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        try:
            adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
        except PydanticUserError:  # a type with a configuration of its own
            adapter = TypeAdapter(hint)
        adapters[field.name] = (adapter, (get_origin(hint) or hint) is tuple)
    return adapters
