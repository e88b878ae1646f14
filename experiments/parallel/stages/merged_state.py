"""The state of an optimizer whose parameters lie on several pipeline ranks, as of one over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from experiments.parallel.base import Named


class MergedState:
    """From each rank's state of its own parameters to the whole one, and back.

    ``make`` makes the optimizer of parameters with their names; ``shapes`` are those of all of
    them, in the model's order.
    """

    def __init__(
        self,
        make: Callable[[Named], torch.optim.Optimizer],
        shapes: Mapping[str, torch.Size],
        gather_objects: Callable[[Any], list[Any]],
    ) -> None:
        named = [(n, nn.Parameter(torch.empty(s, device="meta"))) for n, s in shapes.items()]
        whole = make(named)
        by_id = {id(parameter): name for name, parameter in named}
        self._groups = [[by_id[id(p)] for p in g["params"]] for g in whole.param_groups]
        """Names of each group of the optimizer of all parameters."""
        self._gather = gather_objects

    def whole(self, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """The whole state, equal on every rank.

        Args:
            state: this rank's, as ``Optimizer.state_dict`` has it.
            names: of its parameters, in the order of its numbers.
        """
        entries = {names[i]: values for i, values in state["state"].items()}
        options = {
            names[i]: {key: value for key, value in group.items() if key != "params"}
            for group in state["param_groups"]
            for i in group["params"]
        }
        merged_entries: dict[str, Any] = {}
        merged_options: dict[str, Any] = {}
        for of_rank, options_of_rank in reversed(self._gather((entries, options))):
            merged_entries |= of_rank
            merged_options |= options_of_rank
        numbers = self._numbers()
        groups = [
            {**merged_options[group[0]], "params": [numbers[name] for name in group]}
            for group in self._groups
        ]
        of_all = {numbers[name]: merged_entries[name] for name in numbers if name in merged_entries}
        return {**state, "state": of_all, "param_groups": groups}

    def part(
        self, state: Mapping[str, Any], present: Mapping[str, Any], names: Sequence[str]
    ) -> dict[str, Any]:
        """This rank's part of a whole state.

        Args:
            present: this rank's state, whose groups of parameters stay as they are.
        """
        numbers = self._numbers()
        options = {
            name: {key: value for key, value in group.items() if key != "params"}
            for group, of_group in zip(state["param_groups"], self._groups, strict=True)
            for name in of_group
        }
        entries = {
            i: state["state"][numbers[name]]
            for i, name in enumerate(names)
            if numbers[name] in state["state"]
        }
        groups = [
            {**group, **(options[names[group["params"][0]]] if group["params"] else {})}
            for group in present["param_groups"]
        ]
        return {**state, "state": entries, "param_groups": groups}

    def _numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(n for group in self._groups for n in group)}
