"""Image sets in torchvision's layout: splits, and what an absent or broken set says."""

from __future__ import annotations

import builtins
import fcntl
import gzip
import os
import pickle
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.marks import quick
from workloads import WorkloadError, data_root, download, load
from workloads import data as sets


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path))
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def lay_out(folder: Path, train: int = 5_020, test: int = 7, *, packed: bool = False) -> None:
    """MNIST's files; the first four pixels of an image are its number."""
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        pixels = np.zeros((count, 28, 28), dtype=np.uint8)
        pixels[:, 0, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", np.arange(count) % 10)):
            file = folder / f"{part}-{kind}-ubyte"
            file.write_bytes(idx(array))
            if packed:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
                file.unlink()


def test_the_root_is_the_users_word_or_the_cache(monkeypatch) -> None:
    monkeypatch.setenv("BATCHSCALE_DATA", "~/sets")
    assert data_root() == Path.home() / "sets"
    monkeypatch.delenv("BATCHSCALE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_root() == Path("/somewhere/batchscale")


def test_splits_are_fixed_disjoint_and_whole(root) -> None:
    lay_out(root / "MNIST/raw")
    splits = sets.images("mnist")
    sizes = {name: len(x) for name, (x, _) in splits.items()}
    assert sizes == {"train": 20, "validation": 5_000, "test": 7}
    held = {
        name: x[:, 0, 0, :4].numpy().copy().view(">u4").ravel().tolist()
        for name, (x, _) in splits.items()
    }
    assert sorted(held["train"] + held["validation"]) == list(range(5_020))
    for name, (x, y) in splits.items():
        assert (x.dtype, y.dtype, x.shape[1:]) == (torch.uint8, torch.int64, (1, 28, 28))
        assert [n % 10 for n in held[name]] == y.tolist()
    assert held["train"][:5] == np.random.RandomState(0).permutation(5_020)[:5].tolist()
    assert sets.images("mnist") is splits, "read once a process"


@pytest.mark.parametrize("name", sorted(sets.IMAGE_SETS))
def test_an_absent_set_says_which_files_go_where(root, monkeypatch, name) -> None:
    monkeypatch.setattr(download, "reachable", lambda _: False)
    with pytest.raises(WorkloadError) as caught:
        sets.images(name)
    message, hint = str(caught.value), caught.value.hint or ""
    wanted = sets.set_files(name)
    assert f"data set {name} is not in {root / wanted.folder}" in message
    assert "does not answer" in message
    assert "\n" not in message
    assert wanted.files[0] in hint
    assert "BATCHSCALE_DATA" in hint
    assert not list(root.iterdir()), "nothing is left behind"


def test_a_set_that_is_half_there_is_absent(root, monkeypatch) -> None:
    lay_out(root / "MNIST/raw")
    (root / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    monkeypatch.setattr(download, "reachable", lambda _: False)
    with pytest.raises(WorkloadError, match="data set mnist is not in"):
        sets.images("mnist")


def test_a_download_that_fails_says_so(root, monkeypatch) -> None:
    from torchvision import datasets

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Error downloading\nthe rest")

    monkeypatch.setattr(download, "reachable", lambda _: True)
    monkeypatch.setattr(datasets.MNIST, "download", fails)
    with pytest.raises(WorkloadError, match=r"its download failed: Error downloading$"):
        sets.images("mnist")
    assert not list(root.iterdir()), "nothing is left behind"


def test_packed_files_need_no_network(root, monkeypatch) -> None:
    """What torchvision left packed is handed to it: its checksums decide, here against us."""
    from torchvision import datasets

    lay_out(root / "MNIST/raw", packed=True)

    def unpack(made: datasets.MNIST) -> None:
        for file in Path(made.raw_folder).glob("*.gz"):
            file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))

    monkeypatch.setattr(download, "reachable", lambda _: pytest.fail("no network is needed"))
    monkeypatch.setattr(datasets.MNIST, "download", unpack)
    assert len(sets.images("mnist")["test"][0]) == 7


def test_a_broken_file_is_named(root) -> None:
    lay_out(root / "MNIST/raw")
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    with pytest.raises(WorkloadError, match=r"data set mnist in .*raw cannot be read") as caught:
        sets.images("mnist")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_broken_cifar_file_is_named(root, name) -> None:
    wanted = sets.set_files(name)
    folder = root / wanted.folder
    folder.mkdir()
    for file in wanted.files:
        (folder / file).write_bytes(pickle.dumps({}))
    with pytest.raises(WorkloadError, match=rf"data set {name} in .* cannot be read"):
        sets.images(name)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_a_torchvision_that_does_not_import_is_said_in_one_line(monkeypatch, error) -> None:
    real = builtins.__import__

    def no_torchvision(name: str, *rest):
        if name.split(".")[0] == "torchvision":
            raise error("operator torchvision::nms does not exist\nmore")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_torchvision)
    with pytest.raises(WorkloadError) as caught:
        load("mnist-fc").data()
    assert str(caught.value) == (
        f"torchvision does not import beside torch {torch.__version__}: "
        "operator torchvision::nms does not exist"
    )
    assert "CPU-only" in (caught.value.hint or "")


def test_an_address_where_nothing_answers_is_found_fast() -> None:
    started = time.monotonic()
    assert not download.reachable("http://127.0.0.1:9/", seconds=1.0)
    assert not download.reachable("no address", seconds=1.0)
    assert time.monotonic() - started < 10


def test_a_name_that_resolves_forever_is_given_up(monkeypatch) -> None:
    release = threading.Event()

    def looks_up(*_: object, **__: object) -> None:
        release.wait(180)
        raise OSError

    monkeypatch.setattr(download.urllib.request, "urlopen", looks_up)
    assert not download.reachable("http://slow.invalid/", seconds=0.05)
    release.set()


def test_one_process_at_a_time_downloads(tmp_path) -> None:
    inside, over = threading.Event(), threading.Event()

    def other() -> None:
        with download.downloading("none", None, tmp_path, "none"):
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    over.set()
    thread.join()
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


REAL = {
    "mnist": (55_000, 1, 28, 10),
    "fashion-mnist": (55_000, 1, 28, 10),
    "cifar10": (45_000, 3, 32, 10),
    "cifar100": (45_000, 3, 32, 100),
}


@pytest.mark.parametrize("name", quick(sorted(REAL), 1))
def test_real_sets_have_the_papers_sizes(name) -> None:
    if not sets.present(name):
        pytest.skip(f"data set {name} is not in {data_root()}")
    count, channels, side, classes = REAL[name]
    splits = sets.images(name)
    assert [len(y) for _, y in splits.values()] == [count, 5_000, 10_000]
    for x, y in splits.values():
        assert (x.shape[1:], x.dtype) == ((channels, side, side), torch.uint8)
        assert set(y.tolist()) == set(range(classes))
        assert torch.bincount(y).min() > 0.8 / classes * len(y)
