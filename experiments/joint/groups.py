"""Packs of mixed batch sizes: which engines take their steps jointly, and how they do.

Each pack keeps its own engine, evaluations and snapshots: what is joint is the captured step
(``joint.program``). It computes as many examples of each model as the largest batch size
has, which costs nothing while a step is as long as its kernels are many, and much beyond.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.engines.base import Engine
from experiments.engines.capture import captured_step
from experiments.engines.selection import Arithmetic
from experiments.engines.stack import width_of
from experiments.engines.stacked import StackedEngine
from experiments.joint.program import advance_jointly, kind_of

MULTIPLY_ADDS = 2**28
"""Of the forward passes of a joint step, at most. Not measured: an H100 does the products of such a
step, backward too, in about a tenth of a millisecond, which is the time of about forty kernels."""
EXAMPLES = 2**16
"""Of a joint step, repetitions included, at most: their indices are drawn on the host."""


class JointMember:
    """A pack's engine among those that may take their steps jointly."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.apart = False
        """Whether its joint steps have failed: then it takes all others by itself."""
        self.multiply_adds = 0.0
        """Of the forward pass of an example."""
        if self.possible:
            model = engine.context.model(engine.trials[0])
            self.multiply_adds = Arithmetic.of(engine.context, model).multiply_adds

    @property
    def possible(self) -> bool:
        """Whether this kind of engine can take part at all."""
        engine, study = self.engine, self.engine.context.study
        device = engine.context.device.type
        return (
            isinstance(engine, StackedEngine)
            and device in captured_step.RECORDERS
            and study.ramp is None
        )

    @property
    def models(self) -> int:
        """Rows of its stack."""
        engine = self.engine
        return engine.stack.width if isinstance(engine, StackedEngine) else len(engine.trials)

    @property
    def size(self) -> int:
        """Its batch size."""
        return self.engine.context.study.batch_size

    def kind(self) -> tuple[object, ...] | None:
        """See ``joint.program.kind_of``."""
        if self.apart or not self.possible or not self.engine.trials:
            return None
        assert isinstance(self.engine, StackedEngine)
        return kind_of(self.engine.in_training())


def groups(members: Sequence[JointMember]) -> list[list[JointMember]]:
    """Those that take their steps jointly, of the smallest batch sizes first: at least two each."""
    by_kind: dict[object, list[JointMember]] = {}
    for member in members:
        kind = member.kind()
        if kind is not None:
            by_kind.setdefault(kind, []).append(member)
    made: list[list[JointMember]] = []
    for alike in by_kind.values():
        group: list[JointMember] = []
        for member in sorted(alike, key=lambda m: m.size):
            if group and not _is_small([*group, member]):
                made.append(group)
                group = []
            group.append(member)
        made.append(group)
    return [group for group in made if len(group) > 1]


def can_grow(members: Sequence[JointMember]) -> bool:
    """Whether another pack as large as the largest of ``members``, of twice its batch size, could
    join them."""
    if not members or any(member.kind() is None for member in members):
        return False
    largest = max(members, key=lambda m: m.size)
    models = sum(m.models for m in members) + largest.models
    return _fits(models, 2 * largest.size, largest.multiply_adds)


def _is_small(members: Sequence[JointMember]) -> bool:
    models, size = sum(m.models for m in members), max(m.size for m in members)
    return _fits(models, size, members[0].multiply_adds)


def _fits(models: int, size: int, multiply_adds: float) -> bool:
    """Whether a step of so many models is small, with what its program computes besides."""
    examples = width_of(models) * width_of(size)
    return examples <= EXAMPLES and examples * multiply_adds <= MULTIPLY_ADDS


def advance(group: Sequence[JointMember], steps: int) -> bool:
    """Take so many steps of a group jointly: whether they are taken; else all is as it was."""
    engines = [m.engine for m in group if isinstance(m.engine, StackedEngine)]
    with engines[0].context.precision.products():
        if not advance_jointly([engine.in_training() for engine in engines], steps):
            return False
    for engine in engines:
        engine.took(steps)
    return True
