"""How a workload's model may be cut over several ranks: facts about its modules, by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutPlan:
    """What ``Workload.layout_plan`` returns.

    Modules are named as ``named_modules`` names them; ``*`` stands for any part between two dots:
    ``blocks.*.mlp.0``. Between a layer that is cut by its outputs and the next one, which is cut by
    its inputs, a rank has its share of each example's features: what happens there must treat each
    feature by itself (an activation, dropout), and take sizes from the tensors at hand.
    """

    blocks: tuple[str, ...] = ()
    """Layers that follow one another, such as those of a Transformer: the units in which parameters
    are gathered when they are sharded."""
    columns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """``nn.Linear`` modules that are cut by their outputs -> how many equal parts lie side by side
    in an output, each of which is cut: 3 where queries, keys and values are one layer."""
    rows: tuple[str, ...] = ()
    """``nn.Linear`` modules that are cut by their inputs; the outputs of all ranks are added."""
    channels: tuple[str, ...] = ()
    """Batch norms between a layer cut by outputs and the next: each rank has its features'."""
    pipeline: tuple[str | tuple[str, ...], ...] = ()
    """Modules in the order in which they are applied to an example, between which the model is cut
    into stages: ``"*"`` for all children of an ``nn.Sequential``, ``"blocks.*"``; a tuple of names
    stays together. One tensor goes from each to the next. A stage has the other modules as
    ``None``, or not at all in ``nn.Sequential`` and ``nn.ModuleList``, and the model's ``forward``
    passes over these."""
    multiples: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Sizes that the number of ranks must divide, by what they are called: ``{"heads": 4}``."""
    sequence: SequencePlan | None = None
    """How activations outside of these layers are cut along the sequence; ``None``: they cannot."""

    @property
    def cuts(self) -> bool:
        """Whether any layer can be cut."""
        return bool(self.columns or self.rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequencePlan:
    """The part of a model whose activations, (examples, tokens, features), are cut by tokens."""

    first: str
    """The module whose input is the first to be cut: each rank takes its share of the tokens."""
    after: str
    """The module whose input is whole again."""
    norms: tuple[str, ...]
    """Norms over the features in between, which have each token by itself."""
    length: int
    """Tokens of an example."""
