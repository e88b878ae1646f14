"""A user's file with two layouts: gradients gathered and added, and a layer split over ranks."""

LAYOUTS = """
import torch
from torch import nn
import torch.distributed as dist
from batchscale import ParallelLayout


class Gathered(ParallelLayout):
    # Each gradient by itself, gathered on every rank and added there.
    stacks = True

    def reduce_gradients(self, gradients):
        for gradient in gradients:
            parts = [torch.empty_like(gradient) for _ in range(self.ranks.size)]
            dist.all_gather(parts, gradient)
            gradient.copy_(sum(parts))

    def all_reduce(self, sums):
        return self.ranks.all_reduce_(sums)


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(context, x, ranks):
        context.ranks = ranks
        return ranks.all_reduce_(x.clone())

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(context, x, ranks):
        context.ranks = ranks
        return x

    @staticmethod
    def backward(context, gradient):
        return context.ranks.all_reduce_(gradient.clone()), None


class Columns(nn.Module):
    # A share of the inputs of a linear layer; the outputs of all ranks are added.
    def __init__(self, linear, ranks):
        super().__init__()
        self.ranks, width = ranks, linear.in_features // ranks.size
        self.part = slice(ranks.rank * width, (ranks.rank + 1) * width)
        self.weight = nn.Parameter(linear.weight.detach()[:, self.part].clone())
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x):
        x = Copied.apply(x, self.ranks)[:, self.part]
        return Summed.apply(x @ self.weight.T, self.ranks) + self.bias


class Split(ParallelLayout):
    # Every rank has a share of the last linear layer and sees the whole global batch.
    summary = "the last layer, by its inputs"

    @property
    def model_ranks(self):
        return self.ranks.size

    def wrap(self, model):
        model[-1] = Columns(model[-1], self.ranks)
        return model

    def reduce_gradients(self, gradients):
        pass

    def all_reduce(self, sums):
        return sums

    def all_true(self, flags):
        return self.ranks.all_reduce_(flags.int()) == self.ranks.size

    def state(self, model, optimizer):
        whole, layer = dict(model.state_dict()), model[-1]
        weight = whole[f"{len(model) - 1}.weight"]
        parts = weight.new_zeros(len(weight), weight.shape[1] * self.ranks.size)
        parts[:, layer.part] = weight
        whole[f"{len(model) - 1}.weight"] = self.ranks.all_reduce_(parts)
        return {"model": whole, "optimizer": optimizer.state_dict()}

    def load(self, model, optimizer, state):
        name, layer = f"{len(model) - 1}.weight", model[-1]
        part = state["model"][name][:, layer.part]
        super().load(model, optimizer, {**state, "model": {**state["model"], name: part}})
"""
