"""Rules that derive metaparameters from the batch size: ``rule`` in the grid of an experiment.

From those of a base batch size: ``{learning_rate: sqrt, from: 64}``; at batch size B = k · 64

- ``learning_rate``: ``none``, that of the base; ``sqrt``, √k times it (Krizhevsky 2014,
  arXiv:1404.5997; Malladi et al. 2022, arXiv:2205.10287); ``linear``, k times it (Goyal et al.
  2017, arXiv:1706.02677). Beside a rule for ``momentum`` that is said of the effective rate,
  learning rate / (1 - momentum), of an optimizer that has one: μ^k alone divides it by about k.
- ``beta2``, ``beta1``, ``momentum``: ``half_life``, β^k: the half-life of the average, in examples
  or tokens, is that of the base (Marek et al. 2025, arXiv:2507.07101).
- ``weight_decay``: ``time_scale``, so that B / (learning rate · weight decay), the time scale of
  the weights in examples or tokens, is that of the base (Wang & Aitchison 2024, arXiv:2405.13698).

With a rule for the learning rate nothing is tuned at B: its studies train the table of the base,
row by row, each row by the rule, and the row that is best at the base tells what the rule costs.
Without, each study is tuned, and what the rule names is so many times what its table says.

From an amount of data: ``{beta2: {half_life: 1e6 tokens}, weight_decay: {time_scale: 1e8 tokens}}``
gives the value at every batch size (``experiments.factors.horizon``). It needs no base, and what it
gives is not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from experiments.amounts import EXAMPLES, TOKENS, Amount
from experiments.errors import ExperimentError, nearest
from experiments.factors.horizon import decay_factor, weight_decay
from experiments.search.space import Dimension, Value, complement, rounded
from experiments.typed import Count, Keys, checked

if TYPE_CHECKING:
    from experiments.optimizers import Optimizer

Effective = Callable[[Mapping[str, Value]], float | None]
"""An optimizer's ``effective_learning_rate``."""

_HALF_LIFE, _TIME_SCALE = "half_life", "time_scale"
_KINDS = {
    "learning_rate": ("none", "sqrt", "linear"),
    "beta1": (_HALF_LIFE,),
    "beta2": (_HALF_LIFE,),
    "momentum": (_HALF_LIFE,),
    "weight_decay": (_TIME_SCALE,),
}
_EXAMPLE = (
    "for example: rule: {learning_rate: sqrt, from: 64}, or {beta2: {half_life: 1e6 tokens}}; "
    "or none"
)


class _Written(Keys):
    base: Count | None = Field(default=None, alias="from")
    learning_rate: Any = None
    beta1: Any = None
    beta2: Any = None
    momentum: Any = None
    weight_decay: Any = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule as an experiment writes it."""

    base: int | None = None
    """The batch size whose metaparameters are taken, if any are."""
    kinds: tuple[tuple[str, str], ...] = ()
    """Metaparameter and its rule, in the order of the table above."""
    amounts: tuple[tuple[str, Amount], ...] = ()
    """Metaparameter and the half-life or time scale that gives it, in the same order."""

    @classmethod
    def parse(cls, value: Any) -> Rule | None:
        """Read a rule; ``None`` for ``none``.

        Raises:
            ExperimentError: an unknown metaparameter or rule, no base, or a base of nothing.
        """
        if value == "none":
            return None
        base = checked(_Written, value, {"": _EXAMPLE, "from": _EXAMPLE}).base
        given = [(name, value[name]) for name in _KINDS if name in value]
        if not given:
            raise ExperimentError("a rule for nothing", hint=_EXAMPLE)
        kinds = tuple((n, _kind(n, kind)) for n, kind in given if not isinstance(kind, Mapping))
        amounts = tuple((n, _amount(n, kind)) for n, kind in given if isinstance(kind, Mapping))
        if not kinds:
            if base:
                message = "from: nothing in the rule is taken from another batch size"
                raise ExperimentError(message, hint="leave it out")
            return cls(amounts=amounts)
        if not base:
            raise ExperimentError("no from: the base batch size", hint=_EXAMPLE)
        return cls(base=base, kinds=kinds, amounts=amounts)

    def __str__(self) -> str:
        """As results record it, in the ``technique``."""
        parts = {
            **dict(self.kinds),
            **{name: f"{_KINDS[name][0]} {amount}" for name, amount in self.amounts},
        }
        if self.scales_effective_rate:
            parts["learning_rate"] += " (effective)"
        text = ", ".join(f"{name} {parts[name]}" for name in _KINDS if name in parts)
        return text if self.base is None else f"{text}, from {self.base}"

    @property
    def given(self) -> frozenset[str]:
        """What a half-life or a time scale gives, so that it is not tuned."""
        return frozenset(name for name, _ in self.amounts)

    @property
    def in_tokens(self) -> bool:
        """Whether an amount is in tokens."""
        return any(amount.tokens for _, amount in self.amounts)

    @property
    def transfers(self) -> bool:
        """Whether the learning rate follows, so that nothing is tuned but at the base."""
        return "learning_rate" in dict(self.kinds)

    @property
    def scales_effective_rate(self) -> bool:
        """Whether the learning rate is scaled, and the momentum follows the batch size too."""
        kinds = dict(self.kinds)
        scales = kinds.get("learning_rate") in ("sqrt", "linear")
        return scales and ("momentum" in kinds or "momentum" in self.given)

    def check(self, optimizers: Sequence[Optimizer]) -> None:
        """
        Raises:
            ExperimentError: an optimizer has no such metaparameter, or a weight decay without a
                time scale.
        """
        names = [*(name for name, _ in self.kinds), *sorted(self.given)]
        if "weight_decay" in self.given:
            names.append("learning_rate")
        for name, optimizer in ((n, o) for n in names for o in optimizers):
            if name not in optimizer.arguments:
                message = f"rule {self}: optimizer {optimizer.label} has no {name}"
                raise ExperimentError(message, hint="sweep that optimizer in another experiment")
        for optimizer in optimizers if "weight_decay" in names else ():
            if optimizer.decoupled_decay is False:
                raise ExperimentError(
                    f"rule {self}: weight decay has a time scale where each step shrinks the "
                    "weights by learning rate times weight decay, and that of "
                    f"{optimizer.label} does not",
                    hint="choose an optimizer with decoupled weight decay, such as adamw, or leave "
                    "weight_decay out of the rule",
                )

    def check_base(self, batch_sizes: Sequence[int | str]) -> None:
        """
        Raises:
            ExperimentError: the base is not among the batch sizes.
        """
        if self.base is not None and self.base not in batch_sizes:
            raise ExperimentError(
                f"rule {self}: {self.base} is not among the batch sizes of the grid",
                hint=f"add {self.base}: what is best there is taken elsewhere",
            )

    def check_size(self, batch_size: int, tokens_per_example: int | None) -> None:
        """
        Raises:
            ExperimentError: at this batch size a half-life or a time scale gives no value.
        """
        try:
            for name, amount in self.amounts:
                _value(name, amount, batch_size, tokens_per_example, 1.0)
        except ExperimentError as error:
            raise ExperimentError(f"rule {self}: {error}", hint=error.hint) from None

    def check_search(self, values: Mapping[str, Iterable[Value]]) -> None:
        """
        Args:
            values: what is tuned and fixed, each with the least and the most that it may be.

        Raises:
            ExperimentError: a time scale with a learning rate that is zero, or with several; the
                AdamW of muon has a value of its own for what the rule gives.
        """
        needed = self.given | ({"learning_rate"} if "weight_decay" in self.given else set())
        for name in values:
            if "." in name and name.rpartition(".")[2] in needed:
                message = f"rule {self}: search gives {name}, which the rule would leave as it is"
                raise ExperimentError(message, hint=f"leave {name} out of search")
        rates = values.get("learning_rate", ())
        if "weight_decay" in self.given and any(float(rate) <= 0 for rate in rates):
            message = f"rule {self}: no weight decay has a time scale at learning rate 0"
            raise ExperimentError(message, hint="search learning rates over 0")

    def applied(
        self,
        values: Mapping[str, Value],
        batch_size: int,
        defaults: Mapping[str, Value],
        tokens_per_example: int | None = None,
        effective: Effective | None = None,
    ) -> dict[str, Value]:
        """The metaparameters at ``batch_size`` from those at the base.

        A rule for ``learning_rate`` is one for ``adamw.learning_rate`` too.

        Args:
            defaults: the optimizer's, for what a rule names and ``values`` lacks.
            tokens_per_example: the workload's.
            effective: the optimizer's effective learning rate.
        """
        derived = dict(values)
        kinds = dict(self.kinds)
        if batch_size != self.base:
            given = {**{name: defaults[name] for name in kinds if name in defaults}, **values}
            ruled = {name: value for name, value in given.items() if _usual(name) in kinds}
            derived |= {name: self.at(name, float(v), batch_size) for name, v in ruled.items()}
            if self.scales_effective_rate and "learning_rate" in derived:
                base = {**defaults, **values}
                times = self._times(base, batch_size, tokens_per_example, effective)
                derived["learning_rate"] = rounded(float(derived["learning_rate"]) * times)
        rate = float(derived.get("learning_rate", defaults.get("learning_rate", 0.0)))
        for name, amount in self.amounts:
            derived[name] = _value(name, amount, batch_size, tokens_per_example, rate)
        return derived

    def at(self, name: str, value: float, batch_size: int) -> float:
        """The value at ``batch_size`` of a metaparameter that has ``value`` at the base, be it of
        the AdamW of muon: ``adamw.learning_rate``.

        To nine significant figures (of 1 - β).
        """
        kinds, name = dict(self.kinds), _usual(name)
        if self.base is None or name not in kinds or batch_size == self.base:
            return value
        k = batch_size / self.base
        rate = rate_factor(kinds.get("learning_rate", "none"), k)
        if name == "learning_rate":
            return value if rate == 1 else rounded(value * rate)
        if name == "weight_decay":
            return rounded(value * k / rate)
        return complement(-math.expm1(k * math.log(value))) if value else 0.0

    def _times(
        self,
        base: Mapping[str, Value],
        batch_size: int,
        tokens_per_example: int | None,
        effective: Effective | None,
    ) -> float:
        """The learning rate over the effective one, at ``batch_size`` over that at the base:
        (1 - μ^k) / (1 - μ); 1 of an optimizer without an effective learning rate.

        Args:
            base: the values at the base, with the optimizer's defaults.
        """
        half_life = dict(self.amounts).get("momentum")
        momentum = float(base.get("momentum", 0.0))
        rates = []
        for size in (self.base or batch_size, batch_size):
            there = self.at("momentum", momentum, size)
            if half_life is not None:
                there = decay_factor(half_life, size, tokens_per_example)
            values = {**base, "learning_rate": 1.0, "momentum": there}
            rates.append(effective(values) if effective else None)
        before, after = rates
        return before / after if before and after else 1.0

    def ranges(
        self,
        space: Mapping[str, Dimension],
        batch_size: int,
        fixed: Mapping[str, Value],
        tokens_per_example: int | None = None,
        effective: Effective | None = None,
    ) -> dict[str, Dimension]:
        """The ranges at ``batch_size`` of those at the base, for the results' search space.

        Args:
            fixed: what is not tuned, with the optimizer's defaults; further ones as of ``applied``.
        """
        ranges = {
            name: replace(
                dimension,
                bounds=(
                    self.at(name, dimension.bounds[0], batch_size),
                    self.at(name, dimension.bounds[1], batch_size),
                ),
                choices=tuple(
                    self.at(name, float(value), batch_size) for value in dimension.choices
                ),
            )
            if _usual(name) in dict(self.kinds)
            else dimension
            for name, dimension in space.items()
        }
        rate = ranges.get("learning_rate")
        if rate is None or not self.scales_effective_rate or batch_size == self.base:
            return ranges
        ends = space["momentum"].levels(2) if "momentum" in space else [fixed.get("momentum", 0.0)]
        times = sorted(
            self._times({**fixed, "momentum": end}, batch_size, tokens_per_example, effective)
            for end in ends
        )
        ranges["learning_rate"] = replace(
            rate,
            bounds=(rounded(rate.bounds[0] * times[0]), rounded(rate.bounds[1] * times[-1])),
            choices=tuple(
                rounded(float(value) * t) for value in rate.choices for t in dict.fromkeys(times)
            ),
        )
        return ranges


def rate_factor(kind: str, k: float) -> float:
    """The factor of the learning rate at ``k`` times the batch size, by ``none``, ``sqrt`` or
    ``linear``."""
    return {"sqrt": math.sqrt(k), "linear": k}.get(kind, 1.0)


def usual_rule(optimizer: Optimizer) -> str:
    """The rule of the learning rate that is usual for an optimizer: ``linear`` of SGD with and
    without momentum, ``sqrt`` where gradients are divided by a running norm of them, or signed.

    Raises:
        ExperimentError: of this one no rule is usual.
    """
    named = {**dict.fromkeys(_LINEAR, "linear"), **dict.fromkeys(_SQRT, "sqrt")}
    kind = getattr(optimizer.kind, "__name__", "")
    rule = named.get(optimizer.name) or named.get(kind.lower())
    if rule is None:
        message = f"no rule of the learning rate is usual for optimizer {optimizer.label}"
        raise ExperimentError(message, hint="name one: linear, sqrt or none")
    return rule


_LINEAR = ("sgd", "momentum", "nesterov")
_SQRT = (
    *("adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad", "lamb", "lion", "signum"),
    *("muon", "shampoo", "soap", "schedule-free-adamw"),
)


def _usual(name: str) -> str:
    """``learning_rate`` of ``adamw.learning_rate``."""
    return name.rpartition(".")[2]


def in_rule(name: str, value: Any) -> str | None:
    """``name: value`` as a rule has it, where that is what was written among the ranges."""
    kinds = _KINDS.get(_usual(name), ())
    if isinstance(value, Mapping) and len(value) == 1 and {*value} <= {_HALF_LIFE, _TIME_SCALE}:
        kind = next((kind for kind in kinds if kind in (_HALF_LIFE, _TIME_SCALE)), None)
        return kind and f"rule: {{{_usual(name)}: {{{kind}: 1e6 tokens}}}}"
    if isinstance(value, str) and value in kinds:
        return f"rule: {{{_usual(name)}: {value}, from: 64}}"
    return None


def _kind(name: str, kind: Any) -> str:
    if kind not in _KINDS[name]:
        hint = nearest(str(kind), _KINDS[name])
        raise ExperimentError(f"{name} has no rule {kind!r}", hint=hint)
    return str(kind)


def _amount(name: str, value: Mapping[str, Any]) -> Amount:
    """``{half_life: 1e6 tokens}`` or ``{time_scale: 1e8 tokens}``, whichever ``name`` has."""
    legal = [kind for kind in _KINDS[name] if kind in (_HALF_LIFE, _TIME_SCALE)]
    if len(value) != 1 or next(iter(value)) not in legal:
        example = f"{name}: {{{legal[0]}: 1e6 tokens}}" if legal else _EXAMPLE
        raise ExperimentError(f"{name} has no rule {dict(value)!r}", hint=example)
    (text,) = value.values()
    try:
        return Amount.parse(text, (TOKENS, EXAMPLES), "for example: 1e6 tokens, or 50000 examples")
    except ExperimentError as error:
        raise ExperimentError(f"{name} {legal[0]}: {error}", hint=error.hint) from None


def _value(
    name: str, amount: Amount, batch_size: int, tokens_per_example: int | None, rate: float
) -> float:
    if _KINDS[name] == (_TIME_SCALE,):
        return weight_decay(amount, batch_size, rate, tokens_per_example)
    return decay_factor(amount, batch_size, tokens_per_example)
