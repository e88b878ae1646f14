"""Where text comes from: splits, tokens, fingerprints, and what absent or wrong texts say."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from workloads import TokenStream, WorkloadError, data_root, download, identity, load
from workloads.text import bpe, data_sets, sources
from workloads.text.sources import SOURCES, check_source, read_text
from workloads.text.standard_library import MODULES, read_standard_library

PROSE = "The quick brown fox jumps over the lazy dog; the dog sleeps, and the fox is gone.\n"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(download, "reachable", lambda _: False)
    return tmp_path / "data"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def decoded(tokens: torch.Tensor) -> bytes:
    return tokens.numpy().tobytes()


# The standard library


def test_the_standard_library_is_split_by_position() -> None:
    whole, text = read_standard_library(), read_text("stdlib")
    assert len(whole) > 4_000_000
    assert decoded(torch.cat(list(text.splits.values()))) == whole
    assert text.vocabulary == 256
    assert text.splits["train"].dtype == torch.uint8
    shares = [len(text.splits[name]) / len(whole) for name in ("train", "validation", "test")]
    assert shares == pytest.approx([0.9, 0.05, 0.05], abs=1e-3)
    assert text.dataset == f"stdlib-{text.fingerprint[:8]}"
    assert read_text("stdlib") is text, "read once a process"


def library(folder: Path) -> Path:
    for module in MODULES:
        write(folder / f"{module}.py", f"# {module}\n")
    (folder / "json.py").unlink()
    write(folder / "json/__init__.py", "# json\r\n")
    write(folder / "json/tests/test_json.py", "# a test\n")
    write(folder / "unlisted.py", "# another\n")
    return folder


def test_files_are_selected_and_ordered_by_their_names_alone(tmp_path) -> None:
    text = read_standard_library(library(tmp_path / "a"))
    names = [f"{m}.py" if m != "json" else "json/__init__.py" for m in MODULES]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    lines = [f"# {name.removesuffix('.py').removesuffix('/__init__')}" for name in names]
    assert text.decode() == "".join(f"{line}\n" for line in lines)
    assert read_standard_library(library(tmp_path / "b")) == text


def test_a_library_without_sources_is_refused(tmp_path) -> None:
    (library(tmp_path) / "heapq.py").unlink()
    with pytest.raises(WorkloadError, match="module heapq has no source in") as caught:
        read_standard_library(tmp_path)
    assert "file:PATH" in str(caught.value.hint)


# Data sets below the data root


def test_shakespeare_is_characters(root) -> None:
    write(root / "tinyshakespeare/input.txt", "dcba" * 25)
    text = read_text("shakespeare")
    assert text.vocabulary == 4
    assert text.splits["train"][:5].tolist() == [3, 2, 1, 0, 3]
    assert [len(part) for part in text.splits.values()] == [90, 5, 5]
    assert text.dataset == f"shakespeare-{text.fingerprint[:8]}", "not the published text"


def test_wikitext_has_its_published_splits(root) -> None:
    for name in ("train", "valid", "test"):
        write(root / f"wikitext-2/{name}.txt", name * 3)
    text = read_text("wikitext2")
    assert {name: decoded(part) for name, part in text.splits.items()} == {
        "train": b"traintraintrain",
        "validation": b"validvalidvalid",
        "test": b"testtesttest",
    }


def test_lm1b_is_read_as_it_is_unpacked(root) -> None:
    folder = root / data_sets.LM1B
    train = folder / "training-monolingual.tokenized.shuffled"
    for i in (2, 1, 10):
        write(train / f"news.en-{i:05}-of-00100", f"{i} ")
    write(train / "news.en-00001-of-00100.part", "left over")
    for i in (0, 1, 2):
        path = f"heldout-monolingual.tokenized.shuffled/news.en.heldout-{i:05}-of-00050"
        write(folder / path, f"h{i}")
    splits = {name: decoded(part) for name, part in read_text("lm1b").splits.items()}
    assert splits == {"train": b"1 2 10 ", "validation": b"h0", "test": b"h1"}
    assert read_text("lm1b").dataset.startswith("lm1b-"), "a part of the data set"


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"stdlib"}))
def test_an_absent_text_says_which_file_goes_where(root, name) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_text(name)
    assert f"text {name}: no file {root}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "BATCHSCALE_DATA" in str(caught.value.hint)
    assert not root.exists(), "nothing is left behind"


class Answer:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> bytes:
        return self.content


def test_a_download_is_checked_and_kept(root, monkeypatch) -> None:
    sent: list[str] = []

    def answer(url: str) -> Answer:
        sent.append(url)
        return Answer(PROSE.encode())

    monkeypatch.setattr(download, "reachable", lambda _: True)
    monkeypatch.setattr(data_sets.urllib.request, "urlopen", answer)
    with pytest.raises(WorkloadError, match=r"input\.txt sends has another checksum"):
        read_text("shakespeare")
    assert not list(root.iterdir()), "nothing is left behind"
    right = data_sets.SHAKESPEARE._replace(sha256=hashlib.sha256(PROSE.encode()).hexdigest())
    monkeypatch.setattr(data_sets, "SHAKESPEARE", right)
    text = read_text("shakespeare")
    assert text.dataset == "shakespeare", "the published text"
    assert (root / "tinyshakespeare/input.txt").read_text() == PROSE
    sources._read.cache_clear()
    assert read_text("shakespeare").fingerprint == text.fingerprint
    assert len(sent) == 2


@pytest.mark.parametrize(
    ("name", "vocabulary", "train", "start"),
    [("shakespeare", 65, 1_003_854, "8274cc37"), ("wikitext2", 256, 10_797_148, "ab5528fc")],
)
def test_the_published_texts(name, vocabulary, train, start) -> None:
    files = {"shakespeare": "tinyshakespeare/input.txt", "wikitext2": "wikitext-2/train.txt"}
    if not (data_root() / files[name]).is_file():
        pytest.skip(f"{name} is not in {data_root()}")
    text = read_text(name)
    assert (text.vocabulary, len(text.splits["train"])) == (vocabulary, train)
    assert text.dataset == name
    assert text.fingerprint.startswith(start)


# A user's file


def test_a_file_is_relative_to_the_experiment(tmp_path, monkeypatch) -> None:
    write(tmp_path / "mine/corpus.txt", PROSE * 20)
    workload = load("lm-transformer", {"text": "file:corpus.txt"}, tmp_path / "mine")
    train = workload.data()["train"]
    assert isinstance(train, TokenStream)
    assert decoded(train.tokens).startswith(b"The quick")
    assert workload.dataset.startswith("corpus.txt-")
    same = load(workload, {"context": 8})
    assert same.dataset == workload.dataset, "the folder is kept"
    absolute = load("lm-transformer", {"text": f"file:{tmp_path}/mine/corpus.txt"})
    assert absolute.dataset == workload.dataset
    monkeypatch.chdir(tmp_path / "mine")
    assert load("lm-transformer", {"text": "file:corpus.txt"}).dataset == workload.dataset


def test_an_absent_file_says_so(tmp_path) -> None:
    workload = load("lm-transformer", {"text": "file:gone.txt"}, tmp_path)
    with pytest.raises(WorkloadError, match=f"text file:gone.txt: no file {tmp_path}/gone.txt"):
        workload.data()


@pytest.mark.parametrize("name", ["lm-transformer", "lm-lstm"])
def test_another_text_is_another_workload(tmp_path, name) -> None:
    """In one process too: a file that is edited is read second."""
    file = write(tmp_path / "corpus.txt", PROSE * 20)
    workload = load(name, {"text": "file:corpus.txt"}, tmp_path)
    before = identity(workload)
    assert before["data"] == workload.data_fingerprint
    assert identity(load(name, {"text": "file:corpus.txt"}, tmp_path)) == before
    write(file, PROSE * 19 + PROSE.upper())
    os.utime(file, ns=(1, 1))
    assert {**identity(workload), "data": before["data"]} == before
    assert identity(workload)["data"] != before["data"]


def test_other_workloads_have_no_fingerprint_of_data() -> None:
    assert load("digits-mlp").data_fingerprint is None
    assert identity(load("digits-mlp")).keys() == {"name", "fields", "version"}


# Byte-level BPE


@pytest.fixture
def prose(root) -> Path:
    pytest.importorskip("tokenizers")
    return write(root / "wikitext-2/train.txt", PROSE * 50).parent


def wikitext(folder: Path, train: str) -> None:
    for name, text in {"train": train, "valid": PROSE + "Größe\n", "test": PROSE}.items():
        write(folder / f"{name}.txt", text)


def test_bpe_is_made_once_and_gives_the_text_back(root, prose, monkeypatch) -> None:
    from tokenizers import Tokenizer

    wikitext(prose, PROSE * 50)
    text = read_text("wikitext2-bpe", 280)
    assert text.vocabulary == 280
    assert text.dataset.startswith("wikitext2-bpe280-")
    assert all(part.dtype == torch.uint16 for part in text.splits.values())
    assert len(text.splits["train"]) < 0.8 * len(PROSE * 50)
    assert int(text.splits["train"].int().max()) == 279
    (folder,) = (root / "bpe").iterdir()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    decoded_text = tokenizer.decode(text.splits["validation"].tolist())
    assert decoded_text == PROSE + "Größe\n", "bytes that training lacked are tokens too"
    monkeypatch.setattr(bpe, "_trained", None)  # from here on only what is kept is used
    sources._read.cache_clear()
    second = read_text("wikitext2-bpe", 280)
    assert second.fingerprint == text.fingerprint
    assert all(torch.equal(second.splits[name], part) for name, part in text.splits.items())
    assert read_text("wikitext2-bpe", 280) is second


def test_other_texts_and_vocabularies_have_other_tokens(root, prose) -> None:
    wikitext(prose, PROSE * 50)
    first = read_text("wikitext2", 280)
    assert read_text("wikitext2", 290).fingerprint != first.fingerprint
    sources._read.cache_clear()
    wikitext(prose, PROSE * 50 + PROSE.upper())
    assert read_text("wikitext2", 280).fingerprint != first.fingerprint
    assert len(list((root / "bpe").iterdir())) == 3


def test_a_data_root_that_cannot_be_written_to_has_no_cache(root, prose) -> None:
    wikitext(prose, PROSE * 50)
    write(root / "bpe", "a file where the folder would be")
    first = read_text("wikitext2", 280)
    sources._read.cache_clear()
    assert read_text("wikitext2", 280).fingerprint == first.fingerprint


def test_a_vocabulary_that_the_text_does_not_give_is_refused(prose) -> None:
    wikitext(prose, "abab\n" * 100)
    with pytest.raises(
        WorkloadError, match="a vocabulary of 8,192 tokens cannot be made"
    ) as caught:
        read_text("wikitext2-bpe")
    assert "a smaller vocabulary" in str(caught.value.hint)


def test_without_the_library_bpe_says_what_to_install(prose, monkeypatch) -> None:
    wikitext(prose, PROSE)
    real = builtins.__import__

    def without(name, *rest):
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(WorkloadError, match="needs the package tokenizers") as caught:
        read_text("wikitext2", 300)
    assert "batchscale[bpe]" in str(caught.value.hint)


# Names


@pytest.mark.parametrize(
    ("text", "vocabulary", "message"),
    [
        ("shakespear", None, "no text is called 'shakespear'"),
        ("corpus.txt", None, "no text is called 'corpus.txt'"),
        ("file:", None, "names no file"),
        ("stdlib", 256, "a vocabulary of 256 tokens is not within 257 and 65,536"),
        ("stdlib", 65_537, "a vocabulary of 65,537 tokens"),
    ],
)
def test_wrong_names_are_refused_when_the_workload_is_made(text, vocabulary, message) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        load("lm-lstm", {"text": text, "vocabulary": vocabulary})
    assert caught.value.hint


@pytest.mark.parametrize("text", [*SOURCES, *(f"{name}-bpe" for name in SOURCES), "file:a.txt"])
@pytest.mark.usefixtures("root")
def test_names_are_checked_without_reading_them(text) -> None:
    check_source(text, None)
    load("lm-transformer", {"text": text})


def test_fingerprints_are_those_of_these_bytes(root) -> None:
    """Recorded results stay those of their text: the hash is written out here."""
    write(root / "tinyshakespeare/input.txt", "ab" * 50)
    made = hashlib.sha256()
    for name, count in (("train", 90), ("validation", 5), ("test", 5)):
        start = 1 if name == "test" else 0
        part = np.array([(start + i) % 2 for i in range(count)], dtype=np.uint8)
        made.update(f"{name} uint8 {count} ".encode() + part.tobytes())
    assert read_text("shakespeare").fingerprint == made.hexdigest()
    assert json.dumps(identity(load("lm-lstm", {"text": "shakespeare"}))["data"]) != "null"
