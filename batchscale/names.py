"""``batchscale list``: the names of each kind, each with one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def workloads() -> dict[str, str]:
    """The packaged workloads."""
    from workloads import names

    return names()


def optimizers() -> dict[str, str]:
    """The registered optimizers, each with its default space."""
    from experiments.optimizers import get, names

    no_gain = "; trains by the module engine: no gain from stacking"
    return {
        name: _space(optimizer.space) + ("" if optimizer.stacks else no_gain)
        for name, optimizer in ((name, get(name)) for name in names())
    }


def schedules() -> dict[str, str]:
    """The schedules, each with its default space."""
    from experiments.schedules import get, names

    return {name: _space(get(name).space) or "nothing tuned" for name in names()}


def layouts() -> dict[str, str]:
    """How one model spreads over several workers."""
    from experiments.parallel import get, names

    return {name: get(name).summary for name in names()}


def techniques() -> dict[str, str]:
    """The techniques, each with the first sentence of its class."""
    from experiments.techniques import TECHNIQUES

    return {name: _sentence(kind) for name, kind in TECHNIQUES.packaged.items()}


def figures() -> dict[str, str]:
    """What ``batchscale plot`` draws."""
    from analysis.figures import names

    return names()


def experiments() -> dict[str, str]:
    """The packaged experiments: each file's first comment line."""
    from experiments.config.sources import names

    return names()


def executors() -> dict[str, str]:
    """What ``--address`` can name."""
    from experiments.execution.executors import names

    return names()


def imports() -> dict[str, str]:
    """What ``batchscale import`` reads."""
    from results.extensions import IMPORTS

    return IMPORTS.names()


def exports() -> dict[str, str]:
    """What ``batchscale export`` writes."""
    from results.extensions import EXPORTS

    return EXPORTS.names()


KINDS: Mapping[str, Callable[[], dict[str, str]]] = {
    "workloads": workloads,
    "optimizers": optimizers,
    "schedules": schedules,
    "techniques": techniques,
    "layouts": layouts,
    "figures": figures,
    "experiments": experiments,
    "executors": executors,
    "imports": imports,
    "exports": exports,
}


def _sentence(kind: type) -> str:
    """The first sentence of a docstring."""
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".").replace("``", "")


def _space(space: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_range(value)}" for name, value in space.items())


def _range(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{scale} {ends}" for scale, ends in value.items())
    return f"= {value}"
