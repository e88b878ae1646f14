"""Several optimizers over one model: each trains the parameters that are routed to it by name.

An experiment writes a mapping of patterns (as ``fnmatch`` has them) to optimizers,
``{"blocks.*.weight": muon, "*": adamw}``. A parameter goes to the first pattern that matches it and
whose optimizer takes it: muon takes matrices alone, so that a gain of ``blocks.*.weight`` goes on
to ``*``. A metaparameter that several of them have is shared; ``muon.learning_rate`` addresses one.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import torch
import yaml
from torch import Tensor

from experiments.errors import ExperimentError, nearest
from experiments.optimizers.base import HIDDEN, RATE_FACTOR, Named, Optimizer, Options
from experiments.optimizers.schedule_free import averages
from experiments.optimizers.stacked_parts import Columns, Part, StackedParts
from experiments.optimizers.stacked_update import ParameterSlice, StackedUpdate
from experiments.plan import Value

Routes = Sequence[tuple[str, Optimizer]]
"""Patterns of names with their optimizers, in the order in which they are tried."""
_DISPLAY_NAME = "as"
_EXAMPLE = 'for example: optimizer: {"*.weight": muon, "*": adamw}'


class PartsOptimizer(torch.optim.Optimizer):
    """Optimizers of disjoint parameters as one: their groups in a row, their state together."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([group for part in parts for group in part.param_groups], {})
        for part in parts:  # adagrad's exists before the first step
            self.state.update(part.state)
        self._share()
        averaging: list[Any] = [part for part in parts if averages(part)]
        if averaging:  # how the engines tell that other weights are measured than trained
            self.eval = lambda: [part.eval() for part in averaging]
            self.train = lambda: [part.train() for part in averaging]

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """A step of each."""
        for part in self.parts:
            part.step()


class Routed(Optimizer):
    """Optimizers with the patterns of their parameters.

    Args:
        routes: in the order in which they are tried; one optimizer may have several patterns.
        named: the patterns name parameters, which overrides what the workload says of ``hidden``.
    """

    kind = PartsOptimizer

    def __init__(self, routes: Routes, *, named: bool) -> None:
        self.routes, self.named = list(routes), named
        self.rules = list({rule.label: rule for _, rule in routes}.values())
        names = list(dict.fromkeys(n for rule in self.rules for n in sorted(rule.arguments)))
        self.stacks = all(rule.stacks for rule in self.rules)
        self.amplifies_rounding = any(rule.amplifies_rounding for rule in self.rules)
        decays = {rule.decoupled_decay for rule in self.rules if "weight_decay" in rule.arguments}
        self.decoupled_decay = False if False in decays else None if None in decays else True
        self.shared = {n: [r for r in self.rules if n in r.arguments] for n in names}
        """The optimizers that have a metaparameter, by its name."""
        prefixed = {f"{rule.label}.{n}" for n, rules in self.shared.items() for rule in rules}
        self.arguments = frozenset(names) | prefixed
        self.space = {}
        for rule in self.rules:
            for name, entry in rule.space.items():
                self.space[name] = _union(self.space.get(name), entry)
        self.domains = {
            name: domain
            for rule in self.rules
            for argument, domain in rule.domains.items()
            for name in (argument, f"{rule.label}.{argument}")
        }
        self.defaults = {}
        for rule in reversed(self.rules):  # of a shared one that of the first
            self.defaults |= rule.defaults

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:  # noqa: ARG002
        return {}

    @property
    def averages(self) -> bool:
        return any(rule.averages for rule in self.rules)

    def whole(
        self, shapes: Mapping[str, torch.Size], options: Mapping[str, Options]
    ) -> frozenset[str]:
        rule_of = self.route(shapes, _hidden(options))
        return frozenset(name for name in shapes if not rule_of[name].elementwise)

    def uses(self, name: str, given: Iterable[str]) -> bool:
        given = set(given)
        owners = self.shared.get(name, ())
        return not owners or any(f"{rule.label}.{name}" not in given for rule in owners)

    def module(
        self,
        named_parameters: Iterable[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options] = MappingProxyType({}),
    ) -> torch.optim.Optimizer:
        parameters = dict(named_parameters)
        rule_of = self.route({n: p.shape for n, p in parameters.items()}, _hidden(options))
        parts = []
        for rule in self.rules:
            pairs = [(n, p) for n, p in parameters.items() if rule_of[n] is rule]
            if pairs:
                given = {n: self._of_rule(rule, options.get(n, {}), RATE_FACTOR) for n, _ in pairs}
                given = {name: values for name, values in given.items() if values}
                parts.append(rule.module(pairs, self._values(rule, metaparameters), given))
        return PartsOptimizer(parts)

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        parameters: Sequence[ParameterSlice],
    ) -> StackedUpdate | None:
        hidden = {p.name: bool(options[HIDDEN][p.start]) for p in parameters if HIDDEN in options}
        rule_of = self.route({p.name: p.shape for p in parameters}, hidden)
        parts, rates = [], {}
        for rule in self.rules:
            columns = Columns([p for p in parameters if rule_of[p.name] is rule], like.shape[1])
            if not columns.parameters:
                continue
            values = [self._values(rule, m) for m in metaparameters]
            given = self._of_rule(rule, options)
            vectors = {name: columns.of(vector[None])[0] for name, vector in given.items()}
            form = rule.stacked(values, columns.of(like), vectors, columns.parameters)
            if form is None:
                return None
            rate = f"{rule.label}.learning_rate"
            if any(rate in m for m in metaparameters):
                ratios = [[_ratio(m, rate)] for m in metaparameters]
                rates[rate] = torch.tensor(ratios, dtype=torch.float64)
            parts.append(Part(form, columns, rate if rate in rates else None))
        return StackedParts(parts, rates, like)

    def route(
        self, shapes: Mapping[str, torch.Size], hidden: Mapping[str, bool]
    ) -> dict[str, Optimizer]:
        """The optimizer of each parameter.

        Args:
            shapes: of the parameters, by name.
            hidden: whether a parameter is a hidden one, where the workload says so.

        Raises:
            ExperimentError: a parameter has none, or a pattern gets no parameter.
        """
        chosen: dict[str, int] = {}
        for name, shape in shapes.items():
            is_hidden = self.named or hidden.get(name, True)
            for i, (pattern, rule) in enumerate(self.routes):
                if fnmatchcase(name, pattern) and rule.takes(shape, hidden=is_hidden):
                    chosen[name] = i
                    break
            else:
                raise self._without_optimizer(name, shape)
        for i, (pattern, rule) in enumerate(self.routes):
            is_rest = pattern == "*" and i == len(self.routes) - 1
            if i not in chosen.values() and not is_rest:
                raise self._without_parameter(pattern, rule, shapes)
        return {name: self.routes[i][1] for name, i in chosen.items()}

    def _without_optimizer(self, name: str, shape: torch.Size) -> ExperimentError:
        matched = [rule for pattern, rule in self.routes if fnmatchcase(name, pattern)]
        why = "no pattern matches it"
        if matched:
            why = f"{matched[0].label} takes {matched[0].scope}, and its shape is {tuple(shape)}"
        return ExperimentError(
            f"optimizer {self.label} has none for parameter {name!r}: {why}",
            hint='add a last pattern for the rest: "*": adamw',
        )

    def _without_parameter(
        self, pattern: str, rule: Optimizer, shapes: Mapping[str, torch.Size]
    ) -> ExperimentError:
        matched = [name for name in shapes if fnmatchcase(name, pattern)]
        if not matched:
            return ExperimentError(
                f"optimizer {self.label}: no parameter is called {pattern!r}",
                hint=nearest_parameter(pattern, shapes),
            )
        if any(rule.takes(shapes[name], hidden=True) for name in matched) and self.named:
            return ExperimentError(
                f"optimizer {self.label}: the patterns before {pattern!r} take all parameters "
                "that it matches",
                hint="write the narrower pattern first",
            )
        which = f"that {pattern!r} matches" if self.named else "of the model"
        return ExperimentError(
            f"optimizer {rule.label} takes {rule.scope}, and no parameter {which} is one",
            hint="choose another optimizer, such as adamw",
        )

    def _values(self, rule: Optimizer, metaparameters: Mapping[str, Value]) -> dict[str, Value]:
        """The metaparameters of a rule; a shared default is the same for all that share it."""
        return self._of_rule(rule, {**self.defaults, **metaparameters})

    def _of_rule(self, rule: Optimizer, values: Mapping[str, Any], *further: str) -> dict[str, Any]:
        """Those of ``values`` that a rule has: shared ones, then those with its prefix."""
        names = (*rule.arguments, *further)
        shared = {name: values[name] for name in names if name in values}
        prefixed = {n: values[key] for n in names if (key := f"{rule.label}.{n}") in values}
        return {**shared, **prefixed}


def _hidden(options: Mapping[str, Options]) -> dict[str, bool]:
    return {name: bool(given.get(HIDDEN, 1)) for name, given in options.items()}


def _ratio(metaparameters: Mapping[str, Value], name: str) -> float:
    """A rule's learning rate in multiples of the shared one, which the engine gives."""
    shared = float(metaparameters.get("learning_rate", 1.0))
    rate = float(metaparameters.get(name, shared))
    if shared == 0.0 != rate:
        raise ExperimentError(
            f"learning_rate is 0, and {name} is {rate}", hint="give each optimizer a rate"
        )
    return rate / shared if shared else 1.0


def _union(first: Any, second: Any) -> Any:
    """The range that holds both, if they have one scale; else the first."""
    if first is None:
        return second
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys():
        ((scale, bounds),) = first.items()
        (others,) = second.values()
        if scale != "discrete":
            return {scale: [min(bounds[0], others[0]), max(bounds[1], others[1])]}
    return first


def is_text(text: str) -> bool:
    """Whether a name of an optimizer is a mapping of patterns."""
    return text.lstrip().startswith("{")


def parse(value: str | Mapping[Any, Any]) -> tuple[dict[str, str], str | None]:
    """Patterns with the names of their optimizers, and the display name if it has one.

    Args:
        value: a mapping, or its text: JSON or YAML.

    Raises:
        ExperimentError: it is no mapping of patterns to names.
    """
    loaded: Any = None
    with contextlib.suppress(yaml.YAMLError):
        loaded = yaml.safe_load(value) if isinstance(value, str) else value
    pairs = loaded.items() if isinstance(loaded, Mapping) else ()
    texts = all(isinstance(text, str) for pair in pairs for text in pair)
    if not texts or not {key for key, _ in pairs} - {_DISPLAY_NAME}:
        raise ExperimentError(
            f"optimizer {value} is not a mapping of parameters' names to optimizers", hint=_EXAMPLE
        )
    return {k: v for k, v in loaded.items() if k != _DISPLAY_NAME}, loaded.get(_DISPLAY_NAME)


def text_of(value: Mapping[Any, Any]) -> str:
    """The mapping as the name of an optimizer.

    Raises:
        ExperimentError: it is no mapping of patterns to names.
    """
    names, display_name = parse(value)
    return json.dumps(names | ({_DISPLAY_NAME: display_name} if display_name else {}))


def label_of(text: str, label: Callable[[str], str]) -> str:
    """The display name of a mapping's text; ``label`` gives those of its optimizers."""
    names, display_name = parse(text)
    return display_name or " + ".join(dict.fromkeys(label(name) for name in names.values()))


def specs(text: str) -> list[str]:
    """The names of an optimizer's parts: itself, if it is no mapping."""
    return list(parse(text)[0].values()) if is_text(text) else [text]


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The optimizer with other names of its parts."""
    if not is_text(text):
        return names.get(text, text)
    return json.dumps({p: names.get(name, name) for p, name in parse(text)[0].items()})


def load(text: str, get: Callable[[str], Optimizer]) -> Routed:
    """The optimizer of a mapping's text.

    Raises:
        ExperimentError: no mapping, no such optimizer, or two of one name.
    """
    names, display_name = parse(text)
    loaded: dict[str, Optimizer] = {}
    for name in names.values():
        part = get(name)
        # Of one that routes by itself (muon) the part that gives it its name.
        part = part.rules[0] if isinstance(part, Routed) else part
        loaded[name] = part
    labels = [part.label for part in loaded.values()]
    for name, part in loaded.items():
        if labels.count(part.label) > 1:
            raise ExperimentError(
                f"optimizer {text}: two are called {part.label}",
                hint=f"give it another name: {name} as {part.label}-2",
            )
    optimizer = Routed([(pattern, loaded[name]) for pattern, name in names.items()], named=True)
    optimizer.name = json.dumps(names)
    optimizer.display_name = display_name or " + ".join(labels)
    return optimizer


def nearest_parameter(pattern: str, parameters: Iterable[str]) -> str:
    """A hint: the parameter whose name is most like ``pattern``, or all of them.

    Of more than a dozen the numbers in their names are replaced by ``*``, so that the blocks of a
    deep model are written once; each is a pattern that matches.
    """
    names = list(parameters)
    if len(names) <= 12 or difflib.get_close_matches(pattern, names, cutoff=0.5):
        return nearest(pattern, names)
    blocks = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names)
    return f"known: {', '.join(blocks)}"
