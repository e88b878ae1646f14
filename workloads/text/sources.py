"""Text by name as tokens: ``stdlib``, ``shakespeare``, ``wikitext2``, ``lm1b``, ``file:PATH``.

Tokens are bytes, or for ``shakespeare`` the characters that it has. A name that ends in ``-bpe``,
or a stated vocabulary, makes them those of byte-level BPE (``workloads.text.bpe``).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.data import data_root
from workloads.errors import WorkloadError, nearest
from workloads.text.bpe import DEFAULT_VOCABULARY, LARGEST, SMALLEST, bpe_tokens
from workloads.text.data_sets import (
    RawText,
    by_position,
    read_lm1b,
    read_shakespeare,
    read_wikitext2,
)
from workloads.text.standard_library import read_standard_library
from workloads.user_code.data_files import located

FILE, BPE = "file:", "-bpe"
BYTES = 256
SOURCES: Mapping[str, Callable[[Path], RawText]] = {
    "stdlib": lambda _: RawText(by_position(read_standard_library()), published=False),
    "shakespeare": read_shakespeare,
    "wikitext2": read_wikitext2,
    "lm1b": read_lm1b,
}
"""How the text of a name is read from the data root."""
_CHARACTERS = {"shakespeare"}
_SUMMARIES = {
    "stdlib": "the sources of Python's standard library, as bytes: the default",
    "shakespeare": "Tiny Shakespeare, as characters",
    "wikitext2": "WikiText-2, as bytes",
    "lm1b": "the one billion word benchmark, as bytes; it is not downloaded",
}


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text as tokens."""

    splits: Mapping[str, Tensor]
    """Train, validation and test: token ids, shape (T,), uint8 or uint16."""
    vocabulary: int
    """All tokens are below it."""
    dataset: str
    """The name in results; with the start of the fingerprint, unless it is a published data set."""
    fingerprint: str
    """SHA-256 of the tokens of all splits."""


def names() -> dict[str, str]:
    """The values of a language model's field ``text``, each with one line."""
    pairs = f"the same in tokens of byte-level BPE, {DEFAULT_VOCABULARY:,} by default"
    return {
        **{name: _SUMMARIES[name] for name in SOURCES},
        **{name + BPE: pairs for name in SOURCES},
        f"{FILE}PATH": "a text of your own, as bytes; PATH starts from the experiment file",
    }


def check_source(text: str, vocabulary: int | None) -> None:
    """
    Raises:
        WorkloadError: no such source, or a vocabulary that it cannot have. No file is read.
    """
    if text.startswith(FILE):
        if not text.removeprefix(FILE):
            raise WorkloadError("text 'file:' names no file", hint="write file:corpus.txt")
    elif text.removesuffix(BPE) not in SOURCES:
        names = [*SOURCES, *(name + BPE for name in SOURCES)]
        raise WorkloadError(f"field 'text': no text is called {text!r}", hint=_usable(text, names))
    if vocabulary is not None and not SMALLEST <= vocabulary <= LARGEST:
        raise WorkloadError(
            f"field 'vocabulary': a vocabulary of {vocabulary:,} tokens is not within {SMALLEST} "
            f"and {LARGEST:,}",
            hint="it has the 256 bytes and at least one pair; without it, tokens are bytes",
        )


def _usable(text: str, names: Sequence[str]) -> str:
    """A hint: what to write in the place of a name that no source has."""
    if "/" in text or "." in text:
        return f"a file is {FILE}{text}"
    return f"a file is {FILE}PATH; {nearest(text, names)}"


def read_text(text: str, vocabulary: int | None = None, folder: Path | None = None) -> Text:
    """Read a text; once a process, as long as its file does not change.

    Args:
        text: the name of a source, with ``-bpe`` or without, or ``file:PATH``.
        vocabulary: tokens of byte-level BPE; ``None``: bytes, or the default of a ``-bpe`` name.
        folder: what a relative PATH starts from; the current folder unless given.

    Raises:
        WorkloadError: it is not there and cannot be downloaded; no such source or vocabulary.
    """
    check_source(text, vocabulary)
    if not text.startswith(FILE):
        return _read(text, vocabulary, None, (), data_root())
    path = located(text.removeprefix(FILE), folder or Path(), f"text {FILE}{{}}")
    state = path.stat()
    return _read(text, vocabulary, path, (state.st_mtime_ns, state.st_size), data_root())


@functools.lru_cache(maxsize=4)
def _read(
    text: str, vocabulary: int | None, path: Path | None, state: tuple[int, ...], root: Path
) -> Text:
    del state  # part of the key: an edited file is read again
    if path is not None:
        name, raw = path.name, RawText(by_position(path.read_bytes()), published=False)
    else:
        name = text.removesuffix(BPE)
        raw = SOURCES[name](root)
        if text.endswith(BPE) and vocabulary is None:
            vocabulary = DEFAULT_VOCABULARY
    tokens: Mapping[str, NDArray[np.uint8 | np.uint16]]
    if vocabulary is not None:
        tokens, size = bpe_tokens(raw.splits, vocabulary, root / "bpe"), vocabulary
        name += f"{BPE}{vocabulary}"
    elif name in _CHARACTERS and path is None:
        tokens, size = _characters(raw.splits)
    else:
        tokens, size = {split: _bytes(part) for split, part in raw.splits.items()}, BYTES
    fingerprint = _fingerprint(tokens)
    return Text(
        splits={split: torch.from_numpy(ids) for split, ids in tokens.items()},
        vocabulary=size,
        dataset=name if raw.published else f"{name}-{fingerprint[:8]}",
        fingerprint=fingerprint,
    )


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(text), dtype=np.uint8)


def _characters(splits: Mapping[str, bytes]) -> tuple[dict[str, NDArray[np.uint8]], int]:
    """The bytes as their ranks among those that occur in any split, and how many occur."""
    arrays = {split: _bytes(text) for split, text in splits.items()}
    used = np.unique(np.concatenate(list(arrays.values())))
    ranks = np.zeros(BYTES, dtype=np.uint8)
    ranks[used] = np.arange(len(used))
    return {split: ranks[ids] for split, ids in arrays.items()}, len(used)


def _fingerprint(tokens: Mapping[str, NDArray[np.uint8 | np.uint16]]) -> str:
    made = hashlib.sha256()
    for split, ids in tokens.items():
        little = ids.astype(ids.dtype.newbyteorder("<"), copy=False)
        made.update(f"{split} {ids.dtype.name} {len(ids)} ".encode())
        made.update(np.ascontiguousarray(little).view(np.uint8).data)
    return made.hexdigest()
