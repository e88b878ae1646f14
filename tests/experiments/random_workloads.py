"""A user's file of small workloads whose examples, batches or forward passes are random."""

FILE = """
import torch
from torch import nn
from torch.utils.data import Dataset
from tests.problems import Tiny, TinyData


class Noisy(Tiny):
    def augment(self, batch, generator):
        x, y = batch
        return x + 0.1 * torch.randn(x.shape, generator=generator), y


class RandomSet(Dataset):
    x, y = TinyData.splits()["train"]

    def __len__(self): return 96
    def __getitem__(self, i): return self.x[i] + 0.1 * torch.randn(6), self.y[i]


class Streamed(Tiny):
    def data(self): return {**super().data(), "train": RandomSet()}


class NoisyStreamed(Noisy, Streamed):
    pass


class Dropped(Tiny):
    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))


class Normed(Tiny):
    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
"""
