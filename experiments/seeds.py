"""Seeds by hashing: every random stream has a seed of its own, and nothing is ever drawn twice.

A trial's seed derives from (experiment seed, study, trial); each of its streams from that seed and
a purpose: ``init``, ``order``, ``augment``, ``dropout``, with a step or an epoch where the stream
restarts. A seed needs no state, so resuming continues every stream exactly.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(*parts: int | str) -> int:
    """A 63-bit seed from a tuple of integers and words (about 1 µs).

    Equal tuples give equal seeds on every machine, Python and platform; ``("a", "b")`` differs from
    ``("ab",)``, and ``1`` from ``"1"``.

    Raises:
        TypeError: a part is neither a word nor an integer.
    """
    # ascii() of a tuple of plain integers and words is unambiguous, and the same everywhere.
    text = ascii([part if part.__class__ is str else index(part) for part in parts])  # type: ignore[arg-type]
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's generator of the CPU and, for another ``device``, those of all devices.

    ``torch.manual_seed`` formats the call stack for each kind of device that is not in use, which
    takes longer than making a small model.
    """
    import torch

    on_cpu = device.type == "cpu"
    (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)
