"""Image workloads: subsets, identities, networks, and readers of image folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.plan import WorkloadRef
from experiments.records.rows import study_columns
from tests import image_folders
from tests.problems import study
from workloads import Workload, WorkloadError, identity, load, names
from workloads.images import cifar
from workloads.images.base import subset
from workloads.images.files import ImageFiles, class_folders, validation_part
from workloads.images.networks import residual_network, vgg11

SUBSETS = [name for name in names() if {"train_share", "classes"} <= load(name).fields.keys()]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path))
    return tmp_path


def streamed(workload: Workload) -> dict[str, ImageFiles]:
    """The splits of image files."""
    splits = {}
    for name, split in workload.data().items():
        assert isinstance(split, ImageFiles)
        splits[name] = split
    return splits


def test_a_subset_is_the_first_of_each_class() -> None:
    labels = torch.tensor([2, 0, 1, 0, 2, 1, 0, 0, 2])
    assert subset(labels, 3, 1.0).tolist() == list(range(9))
    assert subset(labels, 2, 1.0).tolist() == [1, 2, 3, 5, 6, 7]
    assert subset(labels, 3, 0.5).tolist() == [0, 1, 2, 3, 4]
    assert subset(labels, 3, 0.01).tolist() == [0, 1, 2], "at least one of each class"


def test_every_image_classifier_has_subsets() -> None:
    assert {n for n in names() if n.startswith(("mnist", "fashion", "cifar", "imagenet"))} | {
        "digits-fc"
    } == set(SUBSETS)


@pytest.mark.parametrize("name", SUBSETS)
def test_a_subset_at_its_default_keeps_the_identity(name: str) -> None:
    """Trials that were recorded before the field was there still count."""
    plain, explicit = load(name), load(name, {"train_share": 1, "classes": 1.0})
    assert identity(plain) == identity(explicit)
    assert not {"train_share", "classes"} & identity(plain)["fields"].keys()
    parts = [identity(load(name, fields)) for fields in ({"train_share": 0.5}, {"classes": 0.5})]
    assert parts[0]["fields"]["train_share"] == 0.5
    assert parts[1]["fields"]["classes"] == 0.5


def test_the_identity_of_resnet8_is_that_of_the_first_version() -> None:
    assert identity(load("cifar10-resnet8", {"width": 16, "depth": 8})) == {
        "name": "cifar10-resnet8",
        "fields": {"augmented": False, "label_smoothing": 0.0},
        "version": "1",
    }
    assert identity(load("cifar10-resnet8", {"width": 8}))["fields"]["width"] == 8


@pytest.mark.parametrize(
    ("fields", "recorded"), [({}, {}), ({"width": 16}, {"width": 16}), ({"width": 4}, {"width": 4})]
)
def test_a_field_that_an_experiment_states_is_in_its_rows(
    fields: dict[str, Any], recorded: dict[str, Any]
) -> None:
    """A grid over widths has a value in each row, the default one too."""
    of = study(workload=WorkloadRef(spec="cifar10-resnet8", fields=fields))
    columns = study_columns(of, load("cifar10-resnet8", fields))
    assert columns["fields"] == {"augmented": False, "label_smoothing": 0.0, **recorded}


def test_digits_in_part() -> None:
    whole: Any
    part: Any
    fewer: Any
    whole, part = load("digits-fc").data(), load("digits-fc", {"classes": 0.5}).data()
    assert {name: set(split[1].tolist()) for name, split in part.items()} == {
        "train": set(range(5)),
        "validation": set(range(5)),
    }
    fewer = load("digits-fc", {"train_share": 0.25, "subset": 100}).data()
    assert len(fewer["train"][1]) == 100
    fewer = load("digits-fc", {"train_share": 0.25}).data()
    assert len(fewer["validation"][1]) == len(whole["validation"][1])
    counts = torch.bincount(fewer["train"][1])
    for count, all_of_class in zip(counts, torch.bincount(whole["train"][1]), strict=True):
        assert count == round(int(all_of_class) * 0.25)
    assert load("digits-fc", {"classes": 0.5}).model()(part["train"][0][:3]).shape == (3, 5)


@pytest.mark.parametrize("name", ["cifar10-resnet8", "cifar100-resnet8", "cifar100-resnet18"])
def test_cifar_in_part(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    classes = 100 if "100" in name else 10
    x, y = torch.zeros(200, 3, 32, 32, dtype=torch.uint8), torch.arange(200) % classes
    splits = dict.fromkeys(("train", "validation", "test"), (x, y))
    monkeypatch.setattr(cifar, "images", lambda _: splits)
    workload = load(name, {"classes": 0.5, "train_share": 0.5, "width": 2})
    data: Any = workload.data()
    assert len(data["train"][0]) == 50
    assert len(data["test"][0]) == 100
    assert int(data["validation"][1].max()) == classes // 2 - 1
    assert workload.model().eval()(torch.zeros(1, 3, 32, 32)).shape == (1, classes // 2)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("digits-fc", {"classes": 0.1}, "leaves 1 of its 10 classes"),
        ("digits-fc", {"classes": 0}, "'classes' of workload digits-fc cannot be 0"),
        ("digits-fc", {"train_share": 1.5}, "'train_share' of workload digits-fc cannot be 1.5"),
        ("cifar10-resnet8", {"depth": 10}, "depth 10 of cifar10-resnet8 is not 6n"),
        ("cifar10-resnet18", {"depth": 20}, "a ResNet of depth 20 is not known"),
    ],
)
def test_fields_that_cannot_be(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        load(name, fields).model()


@pytest.mark.slow
def test_networks_are_torchvisions() -> None:
    from torchvision import models

    def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
        return {name: value.shape for name, value in model.state_dict().items()}

    with torch.device("meta"):
        assert shapes(residual_network(50, 64, 1000)) == shapes(models.resnet50())
        assert shapes(residual_network(34, 64, 10)) == shapes(models.resnet34(num_classes=10))
        assert shapes(vgg11(64, 1000)) == shapes(models.vgg11())
    torch.manual_seed(0)
    ours = residual_network(18, 64, 10)
    torch.manual_seed(0)
    theirs = models.resnet18(num_classes=10)
    assert all(torch.equal(v, theirs.state_dict()[n]) for n, v in ours.state_dict().items())


def test_wider_networks_have_wider_layers() -> None:
    with torch.device("meta"):
        wide = residual_network(50, 128, 10).state_dict()
        assert wide["layer4.2.conv2.weight"].shape == (1024, 1024, 3, 3)
        assert wide["fc.weight"].shape == (10, 4096)
        assert residual_network(18, 8, 10, small=True)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_imagenet_is_read_as_torchvision_does(root: Path) -> None:
    from torchvision.datasets import ImageFolder

    folder = image_folders.imagenet(root)
    data = streamed(load("imagenet-resnet50", {"size": 16, "augmented": False}))
    assert {name: len(split) for name, split in data.items()} == {
        "train": 35,
        "validation": 1,
        "test": 6,
    }
    files = [f for name in ("train", "validation") for f in data[name].files]
    folders = ImageFolder(folder / "train")
    assert sorted(files) == [file for file, _ in folders.samples]
    labels = dict(folders.samples)
    for name in ("train", "validation"):
        assert [labels[f] for f in data[name].files] == data[name].labels.tolist()
    x, y = data["test"][5]
    assert (x.shape, x.dtype, int(y)) == ((3, 16, 16), torch.uint8, 2)
    assert streamed(load("imagenet-vgg11", {"size": 16}))["train"][0][0].shape == (3, 16, 16)


def test_the_validation_part_has_the_papers_size() -> None:
    train, validation = validation_part(1_281_167, 50_045 / 1_281_167)
    assert (len(train), len(validation)) == (1_231_122, 50_045)
    assert len(set(train.tolist()) | set(validation.tolist())) == 1_281_167


def test_augmentation_draws_from_torch_alone(root: Path) -> None:
    image_folders.imagenet(root)
    train = streamed(load("imagenet-resnet50", {"size": 16}))["train"]
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(train[0][0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_imagenet_in_part(root: Path) -> None:
    image_folders.imagenet(root, classes=4)
    workload = load("imagenet-resnet18", {"size": 16, "classes": 0.002, "train_share": 0.5})
    data = streamed(workload)
    assert set(data["train"].labels.tolist()) == {0, 1}
    assert len(data["test"]) == 4
    every = streamed(load("imagenet-resnet18", {"size": 16}))["train"]
    for label in (0, 1):
        of_class = [f for f, y in zip(every.files, every.labels, strict=True) if y == label]
        used = [
            f for f, y in zip(data["train"].files, data["train"].labels, strict=True) if y == label
        ]
        assert used == of_class[: round(len(of_class) / 2)]


def test_without_validation_images_no_test_split_exists(root: Path) -> None:
    image_folders.imagenet(root, val=0)
    assert set(load("imagenet-resnet50").data()) == {"train", "validation"}


def test_folders_that_are_not_as_they_must_be(root: Path) -> None:
    workload = load("imagenet-resnet50", {"size": 16})
    with pytest.raises(
        WorkloadError, match=r"imagenet is not in .*: there is no folder train$"
    ) as e:
        workload.data()
    assert "BATCHSCALE_DATA" in (e.value.hint or "")
    folder = image_folders.imagenet(root, val=0)
    image_folders.write_image(folder / "val/ILSVRC2012_val_00000001.JPEG", 1)
    with pytest.raises(WorkloadError, match=r"val are not in folders of their classes$") as e:
        workload.data()
    assert "move each image into a folder" in (e.value.hint or "")
    image_folders.write_image(folder / "val/n99999999/1.JPEG", 1)
    with pytest.raises(WorkloadError, match="val has other classes than"):
        workload.data()
    (folder / "train/n00000009").mkdir()
    class_folders.cache_clear()
    with pytest.raises(WorkloadError, match=r"train cannot be read: .*n00000009") as e:
        workload.data()
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_an_image_that_cannot_be_decoded_is_named(root: Path, content: bytes | None) -> None:
    image_folders.imagenet(root)
    train = streamed(load("imagenet-resnet50", {"size": 16}))["train"]
    file = Path(train.files[4])
    file.write_bytes(content if content is not None else file.read_bytes()[:300])
    with pytest.raises(WorkloadError) as caught:
        train[4]
    assert str(caught.value).startswith(f"image {file} cannot be decoded: ")
    assert "\n" not in str(caught.value)
