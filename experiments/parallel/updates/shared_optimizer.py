"""An optimizer whose ranks have whole parameters and gradients, and each a share of its state.

torch's ``ZeroRedundancyOptimizer`` deals the parameters out (the largest first, each to the rank
that has least so far), makes each rank's update, and broadcasts what it has updated: parameter by
parameter, since views of one buffer would lose the alignment that kernels want. Its states are not
used: ``consolidate_state_dict`` pickles them, and ``load_state_dict`` keeps a second copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from experiments.encoding import decode, encode
from experiments.parallel.ranks import TorchRanks


class SharedOptimizer(ZeroRedundancyOptimizer):
    """
    Args:
        whole: made over all parameters, without a step. It is narrowed to this rank's.
        ranks: those that have copies of the parameters.
    """

    def __init__(self, whole: torch.optim.Optimizer, ranks: TorchRanks) -> None:
        def narrowed(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
            return _narrowed(whole, groups)

        self._ranks = ranks
        super().__init__(
            [dict(group) for group in whole.param_groups],
            # It is called with the groups of this rank.
            narrowed,  # type: ignore[arg-type]
            process_group=ranks.group,
        )
        self.defaults = whole.defaults  # the technique ``fused`` looks there
        self._numbers = {id(p): i for i, p in enumerate(_parameters(self))}
        owners = torch.zeros(len(self._numbers), dtype=torch.int64, device=ranks.device)
        owners[[self._numbers[id(p)] for p in _parameters(self.optim)]] = ranks.rank
        self._owners: list[int] = ranks.all_reduce_(owners).tolist()
        """The rank that updates each parameter."""
        for name in ("eval", "train"):  # of one that measures other weights than it trains
            if callable(method := getattr(whole, name, None)):
                setattr(self, name, self._on_every_rank(method))

    def _on_every_rank(self, method: Callable[[], Any]) -> Callable[[], None]:
        def change() -> None:
            method()
            group = self._ranks.group
            for p, owner in zip(_parameters(self), self._owners, strict=True):
                dist.broadcast(p.detach(), group=group, group_src=owner)

        return change

    def _publish_options(self) -> None:
        """What the groups of this rank say besides their parameters, in those of all."""
        for group, own in zip(self.param_groups, self.optim.param_groups, strict=True):
            group.update(_without(own, "params"))

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """The whole state, equal on every rank, as that of an optimizer of all parameters."""
        state = self.optim.state_dict()
        entries = {
            self._numbers[id(p)]: state["state"][i]
            for i, p in enumerate(_parameters(self.optim))
            if i in state["state"]
        }
        options = [  # what was set since the last step is known here alone
            _without({**own, **group}, "params")
            for own, group in zip(state["param_groups"], self.param_groups, strict=True)
        ]
        of_ranks = [decode(each) for each in _exchange(encode((entries, options)), self._ranks)]
        parameters = _parameters(self)
        whole = {i: _on(v, parameters[i].device) for each, _ in of_ranks for i, v in each.items()}
        groups = []
        for number, group in enumerate(self.param_groups):
            # A rank without a parameter of the group need not have counted its steps.
            members = [self._numbers[id(p)] for p in group["params"]]
            _, of_owner = of_ranks[self._owners[members[0]]]
            groups.append({**of_owner[number], "params": members})
        return {**state, "state": dict(sorted(whole.items())), "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a whole state; this rank keeps its share."""
        numbers = [self._numbers[id(p)] for p in _parameters(self.optim)]
        given = state_dict["state"]
        entries = {i: given[number] for i, number in enumerate(numbers) if number in given}
        present = self.optim.state_dict()["param_groups"]
        groups = [
            {**options, "params": own["params"]}
            for options, own in zip(state_dict["param_groups"], present, strict=True)
        ]
        self.optim.load_state_dict({**state_dict, "state": entries, "param_groups": groups})
        self._publish_options()


def _narrowed(whole: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """``whole`` with the parameters of these groups alone, one of which may be empty."""
    for group, own in zip(whole.param_groups, groups, strict=True):
        group["params"] = own["params"]
    kept = {id(p) for p in _parameters(whole)}
    for p in [each for each in whole.state if id(each) not in kept]:
        del whole.state[p]  # adagrad's exists before the first step
    return whole


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """In the order of the numbers of its state."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _without(group: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != key}


def _on(value: Any, device: torch.device) -> Any:
    """Tensors on ``device``, but for single numbers, which torch's optimizers count on the CPU."""
    if isinstance(value, Tensor):
        return value.to(device) if value.dim() else value
    if isinstance(value, dict):
        return {key: _on(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on(each, device) for each in value)
    return value


def _exchange(data: bytes, ranks: TorchRanks) -> list[bytes]:
    """Each rank's bytes, by rank."""
    size = torch.tensor([len(data)], device=ranks.device)
    sizes = [torch.empty_like(size) for _ in range(ranks.size)]
    dist.all_gather(sizes, size, group=ranks.group)
    counts = [int(each) for each in sizes]
    padded = bytearray(data.ljust(max(counts), b"\0"))
    sent = torch.frombuffer(padded, dtype=torch.uint8).to(ranks.device)
    parts = [torch.empty_like(sent) for _ in counts]
    dist.all_gather(parts, sent, group=ranks.group)
    return [part[:count].cpu().numpy().tobytes() for part, count in zip(parts, counts, strict=True)]
