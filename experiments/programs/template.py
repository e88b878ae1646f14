"""The experiment file that ``batchscale new --program`` writes, from argparse options."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from results.counts import count
from results.storage.disk_errors import line_of

_ROLES: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("batch_size", "global_batch_size", "train_batch_size", "batchsize", "bs"),
    "per_device": ("per_device_train_batch_size", "per_device_batch_size", "device_batch_size"),
    "learning_rate": ("learning_rate", "lr", "base_lr", "max_lr"),
    "budget": (
        *("max_steps", "steps", "num_steps", "total_steps", "train_steps", "training_steps"),
        *("max_train_steps", "num_train_steps", "num_training_steps", "n_steps"),
        *("max_iters", "max_iter", "max_iterations", "iterations", "num_iterations"),
        *("train_iters", "num_iters", "n_iters"),
    ),
    "seed": ("seed", "random_seed", "manual_seed"),
    "folder": (
        *("out", "out_dir", "output_dir", "output", "save_dir", "save", "log_dir", "logdir"),
        *("checkpoint_dir", "ckpt_dir", "checkpoint_path"),
    ),
    "optimizer": ("optimizer", "optim", "opt"),
}
"""The values of a trial, and how programs call their options; the first that is there."""
_RESUME = (
    *("resume", "auto_resume", "resume_training"),
    *("resume_from_checkpoint", "resume_from", "resume_path"),
)
_LENGTHS = (
    *("epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs", "train_epochs"),
    *("total_tokens", "max_tokens", "train_tokens", "num_tokens", "max_samples", "max_hours"),
)
"""How long they train, in no number of steps."""
_SWITCHES = ("store_true", "BooleanOptionalAction")
_RATES = "{log: [1e-4, 1e-1]}"


@dataclass(frozen=True, kw_only=True)
class _Option:
    """An option of a program: ``--lr``, with what its call says; or an argument by its place."""

    flag: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    switch: bool = False
    """Whether it has no value."""
    required: bool = False

    @property
    def key(self) -> str:
        return self.flag.lstrip("-").replace("-", "_").lower()


def template(path: Path) -> str:
    """The text of an experiment file for a program.

    Raises:
        ExperimentError: it cannot be read, or has no option for a batch size.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ExperimentError(f"cannot read {path}: {line_of(error)}") from None
    declared = [*_options(tree)]
    options = {option.key: option for option in declared if option.flag.startswith("-")}
    given = {
        role: next(options[name] for name in names if name in options)
        for role, names in _ROLES.items()
        if not options.keys().isdisjoint(names)
    }
    if given.keys().isdisjoint({"batch_size", "per_device"}):
        known = ", ".join(f"--{name}" for name in options) or "none that argparse declares"
        raise ExperimentError(
            f"{path.name} has no option for its batch size; its options: {known}",
            hint="write the command by hand: program: python train.py --batch_size={batch_size}",
        )
    if "batch_size" in given:
        given.pop("per_device", None)
    arguments = [f"{option.flag}={{{role}}}" for role, option in given.items()]
    resume = next((options[name] for name in _RESUME if name in options), None)
    if "folder" not in given:
        resume = None
    rest = [o for o in options.values() if o not in (*given.values(), resume)]
    missing = [o.flag for o in declared if o.required and o not in (*given.values(), resume)]
    lengths = [] if "budget" in given else [o.flag for o in rest if o.key in _LENGTHS]
    passes = [o.flag for o in rest if "accum" in o.key and not o.required]
    defaults = [o.flag for o in rest if not (o.required or o.flag in (*lengths, *passes))]
    beside = shlex.quote(f"{path.stem}.yaml")
    lines = [
        f"# batchscale check {beside}, then: batchscale sweep {beside}",
        f"program: python {shlex.quote(path.name)} {' '.join(arguments)}",
        *([f"# to be added, for it requires them: {', '.join(missing)}"] if missing else []),
        *([f"# left at their defaults: {', '.join(defaults)}"] if defaults else []),
        *(f"# {flag}: to be set so that no trial ends before its budget" for flag in lengths),
        *(f"# {flag}: to be set so that a whole step has {{batch_size}}" for flag in passes),
        "grid:                        # one study for each combination",
        "  batch_size: 8..512         # doubling; or a list",
    ]
    if "optimizer" in given:
        names = given["optimizer"].choices or (given["optimizer"].default or "sgd",)
        lines.append(f"  optimizer: [{', '.join(map(str, names))}]")
    if "learning_rate" in given:
        rates = _around(given["learning_rate"].default)
        lines += ["search:                      # tuned afresh in every study"]
        lines += [f"  learning_rate: {rates}"]
    if resume and resume.switch:
        line = f"resume: {resume.flag}"
        lines.append(f"{line:<28} # appended where a trial goes on in its folder")
    elif resume:
        lines.append("# where a trial goes on in its folder; its checkpoint is yours to fill in:")
        lines.append(f"# resume: {resume.flag}={{folder}}/CHECKPOINT")
    steps = given["budget"].default if "budget" in given else None
    budget = steps if isinstance(steps, int) and steps > 0 else 1000
    lines += [
        "target: val_loss < 1.0       # yours: a metric that it reports, and a value",
        "trials: 16                   # feasible points a study",
        f"budget: {count(budget, 'step').replace(',', '')}",
    ]
    return "\n".join(lines) + "\n"


def _options(tree: ast.AST) -> Iterator[_Option]:
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr != "add_argument":
            continue
        flags = [_constant(each) for each in call.args]
        names = [flag for flag in flags if isinstance(flag, str)]
        long = [name for name in names if name.startswith("--") or not name.startswith("-")]
        if not long:
            continue
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        choices = keywords.get("choices")
        required = _constant(keywords.get("required"))
        if not long[0].startswith("-"):
            required = _constant(keywords.get("nargs")) not in ("?", "*")
        known = choices.elts if isinstance(choices, (ast.List, ast.Tuple)) else []
        yield _Option(
            flag=long[0],
            default=_constant(keywords.get("default")),
            choices=tuple(_constant(each) for each in known),
            required=required is True,
            switch=_name(keywords.get("action")) in _SWITCHES,
        )


def _constant(node: ast.AST | None) -> Any:
    """What a constant of the source is; ``None`` if it is none."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _name(node: ast.AST | None) -> str:
    """Of an action: ``"store_true"``, or ``argparse.BooleanOptionalAction`` without its module."""
    return "" if node is None else ast.unparse(node).rpartition(".")[2].strip("'")


def _around(rate: Any) -> str:
    """A decade on either side of the rate that the program has by itself."""
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or rate <= 0:
        return _RATES
    return f"{{log: [{rate / 10:.2g}, {rate * 10:.2g}]}}"
