"""Byte-level BPE (Sennrich et al. 2016, arXiv:1508.07909; on bytes as GPT-2) by ``tokenizers``.

The vocabulary is made once from the training split. The tokenizer and the tokens of all splits are
kept below the data root, in a folder that is named by a hash of the text.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError

DEFAULT_VOCABULARY = 8192
SMALLEST, LARGEST = 257, 2**16
"""All bytes and one pair; what uint16 holds."""
_TRAINED_ON = 2**26
"""Bytes of the training split that make the vocabulary, at most."""
_PIECE = 2**16
"""About so many bytes, up to the end of a line, are encoded by themselves."""
_VERSION = 1


def bpe_tokens(
    splits: Mapping[str, bytes], vocabulary: int, cache: Path
) -> dict[str, NDArray[np.uint16]]:
    """The tokens of each split, below ``vocabulary``.

    Args:
        splits: of the text, UTF-8 (what is not becomes U+FFFD).
        vocabulary: the number of tokens, the 256 bytes among them.
        cache: the folder that holds a folder for each text and vocabulary.

    Raises:
        WorkloadError: ``tokenizers`` is not installed; the training split has too few pairs.
    """
    key = hashlib.sha256(f"{_VERSION} {_TRAINED_ON} {_PIECE}".encode())
    for name, text in splits.items():
        key.update(f"{name} {len(text)} ".encode() + text)
    folder = cache / f"{key.hexdigest()[:16]}-{vocabulary}"
    if not folder.is_dir():
        tokenizer = _trained(splits["train"], vocabulary)
        tokens = {name: _encoded(tokenizer, text) for name, text in splits.items()}
        _store(tokenizer, tokens, folder)
        return tokens
    return {
        name: np.frombuffer((folder / f"{name}.uint16").read_bytes(), "<u2").astype(np.uint16)
        for name in splits
    }


def _trained(text: bytes, vocabulary: int) -> Any:
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise WorkloadError(
            "byte-level BPE needs the package tokenizers, which is not installed",
            hint="pip install 'batchscale[bpe]'",
        ) from None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(text[:_TRAINED_ON]), trainer)
    if tokenizer.get_vocab_size() < vocabulary:
        raise WorkloadError(
            f"a vocabulary of {vocabulary:,} tokens cannot be made from the text: its training "
            f"split gives {tokenizer.get_vocab_size():,}",
            hint="a smaller vocabulary, or more text",
        )
    return tokenizer


def _encoded(tokenizer: Any, text: bytes) -> NDArray[np.uint16]:
    pieces = tokenizer.encode_batch_fast(list(_pieces(text)))
    ids = [np.asarray(piece.ids, dtype=np.uint16) for piece in pieces]
    return np.concatenate(ids) if ids else np.empty(0, np.uint16)


def _pieces(text: bytes) -> Iterator[str]:
    """The text in pieces of whole lines."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _PIECE) + 1 or len(text)
        yield text[start:end].decode("utf-8", errors="replace")
        start = end


def _store(tokenizer: Any, tokens: Mapping[str, NDArray[np.uint16]], folder: Path) -> None:
    """Write the folder whole or not at all; a data root that cannot be written to has no cache."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            tokenizer.save(str(made / "tokenizer.json"))
            for name, ids in tokens.items():
                ids.astype("<u2").tofile(made / f"{name}.uint16")
            os.replace(made, folder)
    except OSError:
        return
