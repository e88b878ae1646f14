"""Published texts below the data root, read as bytes; small ones are downloaded if absent."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from workloads.download import downloading
from workloads.errors import WorkloadError

_PARTS = (0.9, 0.95)
"""Where the validation and the test split of one long text begin, as shares of it."""


class RawText(NamedTuple):
    """The bytes of a text's splits."""

    splits: Mapping[str, bytes]
    published: bool
    """Whether it is, byte for byte, the data set that its name means to everybody."""


class TextFile(NamedTuple):
    """A file below the data root, where it comes from, and its checksum."""

    path: str
    url: str
    sha256: str


SHAKESPEARE = TextFile(
    "tinyshakespeare/input.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_WIKITEXT = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/"
WIKITEXT2 = {
    split: TextFile(f"wikitext-2/{name}.txt", f"{_WIKITEXT}wikitext-2/{name}.txt", sha256)
    for split, name, sha256 in (
        ("train", "train", "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
        ("validation", "valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
        ("test", "test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
    )
}
LM1B = "1-billion-word-language-modeling-benchmark-r13output"
_LM1B_TRAIN = "training-monolingual.tokenized.shuffled"
_LM1B_HELD_OUT = "heldout-monolingual.tokenized.shuffled"
_LM1B_FILES = 99


def by_position(text: bytes) -> dict[str, bytes]:
    """One long text as train (90 %), validation and test (5 % each), in this order."""
    first, second = (int(len(text) * share) for share in _PARTS)
    return {"train": text[:first], "validation": text[first:second], "test": text[second:]}


def read_shakespeare(root: Path) -> RawText:
    """Tiny Shakespeare (Karpathy 2015): 1.1 MB, split by position."""
    text = _read("shakespeare", SHAKESPEARE, root)
    return RawText(by_position(text), _sha256(text) == SHAKESPEARE.sha256)


def read_wikitext2(root: Path) -> RawText:
    """WikiText-2 (Merity et al. 2016, arXiv:1609.07843): 10.8 MB for training, its own splits."""
    splits = {split: _read("wikitext2", file, root) for split, file in WIKITEXT2.items()}
    same = all(_sha256(splits[split]) == file.sha256 for split, file in WIKITEXT2.items())
    return RawText(splits, same)


def read_lm1b(root: Path) -> RawText:
    """The one billion word benchmark (Chelba et al. 2013, arXiv:1312.3005), as it is unpacked.

    All training files that are there, in the order of their names; the first held-out file is the
    validation split, the second the test split.
    """
    folder = root / LM1B
    train = sorted((folder / _LM1B_TRAIN).glob("news.en-000??-of-00100"))
    heldout = [folder / _LM1B_HELD_OUT / f"news.en.heldout-0000{i}-of-00050" for i in (0, 1)]
    if not train or not all(path.is_file() for path in heldout):
        lacks = folder / _LM1B_TRAIN / "news.en-00001-of-00100" if not train else heldout[0]
        raise WorkloadError(
            f"text lm1b: no file {lacks}",
            hint=f"unpack {LM1B}.tar.gz in {root}, or set BATCHSCALE_DATA to a root that has it",
        )
    splits = {
        "train": b"".join(path.read_bytes() for path in train),
        **{name: p.read_bytes() for name, p in zip(("validation", "test"), heldout, strict=True)},
    }
    return RawText(splits, len(train) == _LM1B_FILES)


def _read(name: str, file: TextFile, root: Path) -> bytes:
    path = root / file.path
    if not path.is_file():
        _download(name, file, path, root)
    return path.read_bytes()


def _download(name: str, file: TextFile, path: Path, root: Path) -> None:
    problem = f"text {name}: no file {path}"
    hint = f"put {path.name} there, or set BATCHSCALE_DATA to a root that has {file.path}"
    with downloading(problem, file.url, root, hint):
        if path.is_file():
            return
        with urllib.request.urlopen(file.url) as answer:
            content = answer.read()
        if _sha256(content) != file.sha256:
            raise WorkloadError(
                f"{problem}, and what {file.url} sends has another checksum", hint=hint
            )
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.replace(path)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
