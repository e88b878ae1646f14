"""The ``search`` key of an experiment file: what is tuned in each study, and over which range.

Entries apply in this order, the later ones winning: the optimizer's default space, the schedule's,
``search:`` itself, then its section of the schedule and its section of the optimizer. A plain value
fixes a metaparameter; a range (``{log: [1e-4, 10]}``) tunes it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from experiments import optimizers, schedules
from experiments.config.grid import Grid
from experiments.config.schema import ExperimentFile
from experiments.config.yaml_lines import Path
from experiments.errors import ExperimentError, below, nearest
from experiments.factors.rule import in_rule
from experiments.factors.target_share import TargetShare, in_text, mentions
from experiments.optimizers import Optimizer
from experiments.schedules import Schedule
from experiments.search.domains import DOMAINS, Domain
from experiments.search.space import SCALES, Dimension, Value

Entry = Dimension | Value

_WHOLE_SCALES = ("integer", "discrete")


class Given(NamedTuple):
    """What is given for a metaparameter, and where in the file; nowhere: it is a default."""

    entry: Entry
    path: Path = ()


Entries = Mapping[str, Given]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The content of the key: general entries, and sections of an optimizer or a schedule."""

    general: Entries = field(default_factory=dict)
    sections: Mapping[str, Entries] = field(default_factory=dict)

    @classmethod
    def read(cls, file: ExperimentFile, grid: Grid) -> Tuning:
        """Read ``search:`` of a file. Every name belongs to something in the grid, and every value
        is legal for it.

        Raises:
            ExperimentError: one is not; an impossible range, a section of an unknown name.
        """
        places = file.places
        by_key = {key: owner for owner in grid.owners for key in _keys(owner)}
        owners = {*optimizers.names(), *schedules.names(), *by_key}
        everywhere = grid.scheduled.union(*(o.arguments for o in grid.optimizers))
        general: dict[str, Given] = {}
        sections: dict[str, Entries] = {}
        for name, value in file.search.items():
            path: Path = ("search", name)
            with places.errors_at(path, named=True):
                _refuse_rule(name, value)
                if not _is_section(name, value, owners):
                    general[name] = Given(_entry(name, value), path)
                    if name not in everywhere:
                        raise _unknown(name, everywhere)
                    check_value(name, general[name].entry, grid, grid.schedules)
                    continue
                # A user's or one of torch's, which a grid that ``--set`` narrows may leave out.
                of_others = ":" in name or isinstance(getattr(torch.optim, name, None), type)
                if name not in owners and not of_others:
                    message = "no optimizer or schedule of that name, and no range"
                    raise ExperimentError(message, hint=_section_hint(name, value, owners))
                owner = by_key.get(name) or _other(name, file.base)
                legal, checked = owner.arguments | grid.scheduled, grid.schedules
                if isinstance(owner, Schedule):  # the form that it gives a length is its own
                    legal, checked = owner.arguments, [owner]
                refuse_two_lengths(value, checked)
                if sections.keys() & {*_keys(owner)}:
                    message = f"{owner.name} and {owner.label}, which it is called, have sections"
                    raise ExperimentError(message, hint="keep one of the two")
            section: dict[str, Given] = {}
            for inner, entry in value.items():
                with places.errors_at((*path, inner), named=True):
                    section[inner] = Given(_entry(inner, entry), (*path, inner))
                    if inner not in legal:
                        hint = nearest(inner, sorted(legal))
                        raise ExperimentError(f"{name} has no argument {inner!r}", hint=hint)
                    check_value(inner, section[inner].entry, grid, checked)
            sections[name] = section
        with places.errors_at(("search",), named=True):
            refuse_two_lengths(general, grid.schedules)
        return cls(general=general, sections=sections)

    def resolve(
        self, optimizer: Optimizer, schedule: Schedule, fields: Iterable[str]
    ) -> dict[str, Given]:
        """What a study of these tunes and fixes, by name in alphabetical order."""
        legal = optimizer.arguments | schedule.arguments | set(fields)
        entries: dict[str, Given] = {}
        layers = (
            _space(optimizer.space, f"optimizer {optimizer.name}"),
            _space(schedule.space, f"schedule {schedule.name}"),
            self.general,
            self._section(schedule),
            self._section(optimizer),
        )
        for layer in layers:
            for name, given in layer.items():
                if name in legal:
                    # A length is a share or a number of steps, examples or tokens: one of them.
                    for form in schedule.other_forms(name):
                        entries.pop(form, None)
                    entries[name] = given
        return dict(sorted(entries.items()))

    def written(
        self, in_grid: Sequence[Optimizer], plans: Sequence[Schedule], fields: Iterable[str]
    ) -> dict[str, Any]:
        """All spaces of the grid in full, defaults too, as an experiment file writes them."""
        fields = frozenset(fields)
        parts: dict[str, dict[str, Given]] = {}
        for optimizer in in_grid:
            arguments = {
                name: given
                for schedule in plans
                for name, given in self.resolve(optimizer, schedule, fields).items()
                if name in optimizer.arguments | fields
            }
            parts[optimizer.name] = {**arguments, **self._section(optimizer)}
        for schedule in plans:
            general = Tuning(
                general=self.general, sections={schedule.name: self._section(schedule)}
            )
            entries = general.resolve(in_grid[0], schedule, ())
            parts[schedule.name] = {n: e for n, e in entries.items() if n in schedule.arguments}
        return {
            section: {name: _written(given.entry) for name, given in sorted(entries.items())}
            for section, entries in parts.items()
            if entries
        }

    def _section(self, owner: Optimizer | Schedule) -> Entries:
        """The section of an optimizer or a schedule, by its name or by its label."""
        written = [self.sections[key] for key in _keys(owner) if key in self.sections]
        return written[0] if written else {}


def _keys(owner: Optimizer | Schedule) -> tuple[str, ...]:
    return owner.name, owner.label


def _is_section(name: str, value: Any, owners: Iterable[str]) -> bool:
    """Whether ``name: value`` is a section of an optimizer or a schedule, not a value or a range.

    ``momentum`` is both an optimizer and a metaparameter, so that the value decides.
    """
    if not isinstance(value, Mapping) or (len(value) == 1 and next(iter(value)) in SCALES):
        return False
    if not any(isinstance(inner, (list, tuple)) for inner in value.values()):
        return True  # a range holds a list; a section holds values and ranges
    if name not in owners:
        return False
    plans = (schedules.get(each) for each in schedules.names())
    metaparameters = DOMAINS.keys() | frozenset().union(*(plan.arguments for plan in plans))
    return name not in DOMAINS or any(key in metaparameters for key in value)


def _other(name: str, base: str | None) -> Optimizer | Schedule:
    """An optimizer or a schedule that the grid leaves out.

    Raises:
        ExperimentError: there is none of that name.
    """
    if name in schedules.names():
        return schedules.get(name)
    try:
        return optimizers.get(name, base)
    except ExperimentError:
        with contextlib.suppress(ExperimentError):
            return schedules.get(name, base)
        raise


def _section_hint(name: str, value: Mapping[str, Any], owners: Iterable[str]) -> str:
    hint = nearest(name, sorted(owners))
    if any(not isinstance(v, Mapping) for v in value.values()):
        return f"a range is written {name}: {{log: [1e-4, 10]}}; {hint}"
    return hint


def _refuse_rule(name: str, value: Any) -> None:
    """A rule is a factor of the grid, or stands beside it: it is of all optimizers alike.

    Raises:
        ExperimentError: the value is a rule.
    """
    if spelling := in_rule(name, value):
        message = f"{value!r} is a rule, and search holds values and ranges"
        hint = f"write it outside of search, {spelling}; a rule is of all optimizers"
        raise ExperimentError(message, hint=hint)


def _entry(name: str, value: Any) -> Entry:
    """A plain value, or a range.

    Raises:
        ExperimentError: it is neither.
    """
    _refuse_rule(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ExperimentError(f"{value} is not a finite number")
    if isinstance(value, (bool, int, float, str)):
        plain: Value = TargetShare.parse(value)
        return plain
    if not isinstance(value, Mapping):
        raise ExperimentError(
            f"{value!r} is neither a value nor a range",
            hint=f"write {name}: {{log: [1e-4, 10]}} or {name}: {{discrete: [0.01, 0.1]}}",
        )
    if len(value) != 1:
        message = f"a range has one scale, not {len(value)}"
        raise ExperimentError(message, hint=f"one of {', '.join(SCALES)}")
    ((scale, bounds),) = value.items()
    with below(scale):
        return Dimension.parse(scale, bounds)


def _written(entry: Entry) -> Any:
    """As an experiment file writes it."""
    return entry.notation() if isinstance(entry, Dimension) else in_text(entry)


def _space(space: Mapping[str, Any], owner: str) -> Entries:
    """A default space, in the notation of the file."""
    entries = {}
    for name, value in space.items():
        try:
            entries[name] = Given(_entry(name, value))
        except ExperimentError as error:
            message = f"{owner}: space of {name}: {error}"
            raise ExperimentError(message, hint=error.hint) from None
    return entries


def _unknown(name: str, everywhere: Iterable[str]) -> ExperimentError:
    owners = [o for o in optimizers.names() if name in optimizers.get(o).arguments]
    owners += [s for s in schedules.names() if name in schedules.get(s).arguments]
    if owners:
        return ExperimentError(
            f"nothing in the grid has it, only {', '.join(owners)}",
            hint=f"write it under the name: search: {{{owners[0]}: {{{name}: …}}}}",
        )
    return ExperimentError(
        "neither an optimizer's argument, nor a schedule's, nor a workload's field",
        hint=nearest(name, sorted(everywhere)),
    )


def refuse_two_lengths(given: Iterable[str], plans: Iterable[Schedule]) -> None:
    """A length is given as a share or in steps, examples or tokens.

    Raises:
        ExperimentError: two of these, one of which would be ignored.
    """
    names = list(given)
    for schedule in plans:
        for i, name in enumerate(names):
            for earlier in set(names[:i]).intersection(schedule.other_forms(name)):
                raise ExperimentError(
                    f"{earlier} and {name} are one length of schedule {schedule.label}",
                    hint="keep one of the two",
                    at=(name,),
                )


def check_value(name: str, entry: Entry, grid: Grid, plans: Sequence[Schedule]) -> None:
    """A usual metaparameter must be a number of its legal range.

    Args:
        plans: the schedules that the entry is for.

    Raises:
        ExperimentError: it is not, or it is swept; other fields of the workload are checked
            elsewhere.
    """
    if mentions(entry) and not any(name in schedule.shares for schedule in plans):
        message = f"{entry}: {name} is no share of the budget"
        raise ExperimentError(message, hint="lengths of schedules are: decay, warmup, period …")
    if name in grid.swept:
        message = f"{name} is in the grid too"
        raise ExperimentError(message, hint="keep one of the two")
    if name in grid.fields:
        return
    of_schedules = [schedule for schedule in plans if name in schedule.domains]
    for schedule in of_schedules:
        steps = schedule.shares.get(name)
        shares = f"{name} is a share of the budget, or such as 0.5 of target"
        check_domain(
            entry, schedule.domains[name], f"{shares}; {steps} is in steps" if steps else None
        )
    usual = name.rpartition(".")[2]  # adamw.learning_rate
    if usual in DOMAINS and not of_schedules:
        check_domain(entry, DOMAINS[usual])


def check_domain(entry: Entry, domain: Domain, hint: str | None = None) -> None:
    """A value, or both ends of a range, must be a number of ``domain``.

    Raises:
        ExperimentError: it is not.
    """
    if not isinstance(entry, Dimension):
        values: Sequence[Value] = (entry,)
    elif entry.scale == "discrete":
        values = entry.choices
    else:
        values = entry.bounds
    for value in values:
        if isinstance(value, (bool, str)):
            raise ExperimentError(f"{value!r} is not a number", hint=hint)
        if not math.isfinite(value):
            raise ExperimentError(f"{value} is not a finite number")
        if value not in domain:
            raise ExperimentError(f"{value} is outside {domain}", hint=hint)
    if domain.whole and isinstance(entry, Dimension) and entry.scale not in _WHOLE_SCALES:
        message = f"{entry.scale} draws fractions"
        raise ExperimentError(message, hint="whole numbers: integer or discrete")
