"""Where data sets live, and the image sets that are read from there in torchvision's layout.

Of each training set the last 5,000 examples of a fixed permutation (numpy's frozen
``RandomState(0)``) are the validation split: 55,000 / 5,000 / 10,000 for MNIST and Fashion-MNIST,
45,000 / 5,000 / 10,000 for CIFAR-10 and CIFAR-100, as Shallue et al. 2019 have them.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workloads.download import downloading
from workloads.errors import WorkloadError, first_line

if TYPE_CHECKING:
    from torch import Tensor

VALIDATION = 5_000
_SPLIT_SEED = 0


IMAGE_SETS = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
}
"""Name -> torchvision's class."""


class SetFiles(NamedTuple):
    """Where torchvision keeps a set below the data root, and where it comes from."""

    folder: str
    files: list[str]
    """In the folder."""
    archives: list[str]
    """What is downloaded, below the root."""
    url: str


def data_root() -> Path:
    """``$BATCHSCALE_DATA``, else ``batchscale`` in the user's cache folder."""
    stated = os.environ.get("BATCHSCALE_DATA")
    if stated:
        return Path(stated).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "batchscale"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "batchscale"


def images(name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Train, validation and test: uint8 (N, channels, height, width), int64 (N,).

    Read once a process. A set that is absent is downloaded by torchvision, with its checksums.

    Raises:
        WorkloadError: absent and not downloadable, not readable, or torchvision does not import.
    """
    return _images(name, data_root())


def set_files(name: str) -> SetFiles:
    """The files of an image set, as torchvision names them."""
    dataset = _dataset(name)
    if hasattr(dataset, "resources"):  # MNIST and its like
        folder = f"{dataset.__name__}/raw"
        packed = [file for file, _ in dataset.resources]
        files = [file.removesuffix(".gz") for file in packed]
        return SetFiles(folder, files, [f"{folder}/{each}" for each in packed], dataset.mirrors[0])
    files = [file for file, _ in (*dataset.train_list, *dataset.test_list)]
    files.append(dataset.meta["filename"])
    return SetFiles(dataset.base_folder, files, [dataset.filename], dataset.url)


def present(name: str, root: Path | None = None) -> bool:
    """Whether all files of a set exist, unpacked."""
    wanted = set_files(name)
    return all(((root or data_root()) / wanted.folder / file).is_file() for file in wanted.files)


@functools.cache
def _images(name: str, root: Path) -> dict[str, tuple[Tensor, Tensor]]:
    import numpy as np
    import torch

    if not present(name, root):
        _download(name, root)
    x, y = _read(name, root, train=True)
    order = torch.from_numpy(np.random.RandomState(_SPLIT_SEED).permutation(len(x)))
    train, validation = order[:-VALIDATION], order[-VALIDATION:]
    return {
        "train": (x[train], y[train]),
        "validation": (x[validation], y[validation]),
        "test": _read(name, root, train=False),
    }


def _read(name: str, root: Path, *, train: bool) -> tuple[Tensor, Tensor]:
    import torch

    try:
        with warnings.catch_warnings():  # CIFAR's pickles hold what newer numpy warns of
            warnings.simplefilter("ignore")
            source = _dataset(name)(root, train=train, download=False)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        folder = root / set_files(name).folder
        raise WorkloadError(
            f"data set {name} in {folder} cannot be read: {first_line(error)}",
            hint=f"remove {folder} to have it downloaded again",
        ) from error
    x = torch.as_tensor(source.data)
    x = x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2).contiguous()
    return x, torch.as_tensor(source.targets).long()


def _download(name: str, root: Path) -> None:
    wanted = set_files(name)
    hint = f"put {', '.join(wanted.files)} there, or set BATCHSCALE_DATA to a root that has them"
    problem = f"data set {name} is not in {root / wanted.folder}"
    packed = all((root / archive).is_file() for archive in wanted.archives)
    with downloading(problem, None if packed else wanted.url, root, hint):
        if not present(name, root):
            _dataset(name)(root, download=True)


def _dataset(name: str) -> Any:
    return getattr(torchvision_module("datasets"), IMAGE_SETS[name])


def torchvision_module(name: str) -> Any:
    """``torchvision.<name>``.

    Raises:
        WorkloadError: it does not import beside this torch.
    """
    try:
        return __import__(f"torchvision.{name}", None, None, ["*"])
    except (ImportError, OSError, RuntimeError) as error:
        import torch

        raise WorkloadError(
            f"torchvision does not import beside torch {torch.__version__}: {first_line(error)}",
            hint="install both from one index: a CPU-only torch and the default torchvision differ",
        ) from error
