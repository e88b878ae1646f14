"""A user's file of small workloads that train on an ``IterableDataset``."""

FILE = """
import random
import torch
from torch.utils.data import IterableDataset
from tests.problems import TinyData
from workloads import Classification

X, Y = TinyData.splits()["train"]
READ = [0]  # examples that were read in this process


class Counted(IterableDataset):
    # The examples in their order, over and over; no state of its own.
    def __iter__(self):
        number = 0
        while True:
            READ[0] += 1
            yield X[number % 96], Y[number % 96]
            number += 1


class Random(IterableDataset):
    # Noise and the choice of an example from torch's generator.
    def __iter__(self):
        shift = int(torch.randint(96, ()))
        while True:
            READ[0] += 1
            i = (shift + int(torch.randint(96, ()))) % 96
            yield X[i] + 0.1 * torch.randn(6), Y[i]


class Stateful(IterableDataset):
    # A linear congruential generator: its position is two numbers.
    def __init__(self):
        self.state, self.number = 1, 0

    def set_seed(self, seed):
        self.state = seed % 9973

    def __iter__(self):
        while True:
            READ[0] += 1
            self.state = (self.state * 5003 + 77) % 9973
            self.number += 1
            yield X[self.state % 96], Y[self.state % 96]

    def state_dict(self):
        return {"state": self.state, "number": self.number}

    def load_state_dict(self, state):
        self.state, self.number = state["state"], state["number"]


class Steps:
    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        READ[0] += 1
        self.number += 1
        return X[self.number * 7 % 96], Y[self.number * 7 % 96]

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


class OfIterator(IterableDataset):
    # The state is the iterator's.
    def __iter__(self):
        return Steps()


class Sized(IterableDataset):
    # Passes of 90 examples, each shuffled by its epoch.
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 90

    def __iter__(self):
        READ[0] += 90
        order = torch.randperm(90, generator=torch.Generator().manual_seed(self.epoch))
        return iter([(X[i], Y[i]) for i in order])


class Resumes(IterableDataset):
    # Passes in an order of their seed; a loaded position counts for the next iterator alone.
    seed, start, state = 0, 0, None

    def set_seed(self, seed):
        self.seed = seed

    def __len__(self):
        return 90

    def __iter__(self):
        start, self.start = self.start, 0
        order = torch.randperm(90, generator=torch.Generator().manual_seed(self.seed % 2**62))
        for self.number in range(start, 90):
            READ[0] += 1
            yield X[order[self.number]], Y[order[self.number]]

    def state_dict(self):
        return {"number": torch.tensor(self.number + 1), "seed": self.seed}

    def load_state_dict(self, state):
        self.start, self.seed = int(state["number"]), state["seed"]


class Ends(IterableDataset):
    def __init__(self, examples=100, length=None):
        self.examples = examples
        if length is not None:
            self.__class__ = type("Ends", (Ends,), {"__len__": lambda self: length})

    def __iter__(self):
        return iter([(X[i % 96], Y[i % 96]) for i in range(self.examples)])


class Unequal(IterableDataset):
    def __iter__(self):
        while True:
            yield X[0], Y[0]
            yield X[0][:4], Y[0]


class Bare(IterableDataset):
    def __iter__(self):
        while True:
            yield X[0]


class Global(IterableDataset):
    # Random numbers that no seed of a trial reaches.
    def __iter__(self):
        while True:
            yield X[0] + random.random(), Y[0]


class Forgets(Stateful):
    def load_state_dict(self, state):
        pass


class Holds(Stateful):
    def state_dict(self):
        return {"state": self}


class Opened(IterableDataset):
    def __init__(self):
        self.lines = (line for line in ())  # as an open file, it cannot be copied

    def __iter__(self):
        return iter([])


class Stream(Classification):
    target = "validation_error < 0.05"
    data_set: str = "Counted"
    examples: int = 100
    length: int | None = None

    def data(self):
        kind = globals()[self.data_set]
        of = kind(self.examples, self.length) if kind is Ends else kind()
        return {"train": of, "validation": TinyData.splits()["validation"]}

    def model(self):
        return TinyData.model()


class Augmented(Stream):
    data_set: str = "Random"

    def augment(self, batch, generator):
        x, y = batch
        return x + 0.1 * torch.randn(x.shape, generator=generator), y
"""

ENDLESS = ("Counted", "Random", "Stateful", "OfIterator")
EVERY = (*ENDLESS, "Sized", "Resumes")
