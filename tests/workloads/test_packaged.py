"""Every packaged workload keeps the contract: shapes, counts, function transforms, seeds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from workloads import load, names
from workloads.checks import check_metrics, check_per_example
from workloads.text.language_model import LanguageModel

STORED = {
    "digits": ((64,), torch.float32),
    "mnist-8x8": ((64,), torch.float32),
    "fashion-mnist-8x8": ((64,), torch.float32),
    "mnist": ((1, 28, 28), torch.uint8),
    "fashion-mnist": ((1, 28, 28), torch.uint8),
    "cifar10": ((3, 32, 32), torch.uint8),
    "cifar100": ((3, 32, 32), torch.uint8),
    "imagenet": ((3, 32, 32), torch.uint8),
    "multilabel-generated": ((32,), torch.float32),
}
GENERATED = ("teacher", "markov")
SMALL: dict[str, dict[str, Any]] = {
    "mnist-fc": {"widths": [8, 8]},
    "mnist-simple-cnn": {"scale": 0.0625},
    "fashion-mnist-simple-cnn": {"scale": 0.0625},
    "cifar10-resnet8": {"augmented": True},
    "cifar100-resnet8": {"augmented": True, "width": 4},
    "cifar10-resnet18": {"augmented": True, "width": 2},
    "cifar100-resnet18": {"augmented": True, "width": 2},
    "cifar10-vgg11": {"augmented": True, "width": 2},
    "cifar100-vgg11": {"augmented": True, "width": 2},
    "imagenet-resnet50": {"width": 2},
    "imagenet-resnet18": {"width": 2},
    "imagenet-vgg11": {"width": 2, "dropout": 0.0},
    "quadratic": {"replicas": 2, "examples": 32},
    "lm-transformer": {"layers": 1, "width": 8, "heads": 2, "context": 5},
    "lm-lstm": {"layers": 1, "width": 8, "context": 5},
}


def stored_batch(workload, examples: int = 6):
    """A batch as the workload stores it; random where the real set may be absent."""
    if workload.dataset == "none":
        return (workload.data()["train"][0][:examples],)
    if isinstance(workload, LanguageModel):
        return workload.data()["train"].windows(torch.arange(examples))
    if workload.dataset in GENERATED:
        return workload.data()["train"].examples(torch.arange(examples))
    shape, dtype = STORED[workload.dataset]
    made = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (examples, *shape), generator=made)
    x = x.to(dtype) if dtype == torch.uint8 else x / 255
    if "labels" in workload.fields:  # several an example
        shape = (examples, workload.fields["labels"])
        return x, torch.randint(0, 2, shape, generator=made, dtype=torch.uint8)
    return x, torch.arange(examples) % 10


@pytest.fixture(params=sorted(names()))
def workload(request):
    return load(request.param, SMALL.get(request.param, {}))


@pytest.mark.parametrize(
    ("name", "fields", "count"),
    [
        ("digits-mlp", {}, 4_810),
        ("digits-softmax", {}, 650),
        ("digits-fc", {}, 4_810),
        ("mnist8-fc", {"widths": [16, 8]}, 1_266),
        ("mnist-fc", {}, 814_090),
        ("mnist-fc", {"widths": [64, 64, 64]}, 59_210),
        ("mnist-simple-cnn", {}, 3_274_634),
        ("fashion-mnist-simple-cnn", {}, 3_274_634),
        ("mnist-simple-cnn", {"scale": 0.5}, 821_706),
        ("cifar10-resnet8", {}, 75_050),
        ("cifar10-resnet8", {"depth": 14}, 172_042),
        ("cifar10-resnet8", {"width": 4}, 4_946),
        ("cifar100-resnet8", {}, 80_900),
        ("cifar10-resnet18", {}, 11_173_962),
        ("cifar100-resnet18", {"width": 8}, 182_252),
        ("cifar10-vgg11", {}, 9_225_610),
        ("imagenet-resnet18", {}, 11_689_512),
        ("imagenet-resnet50", {}, 25_557_032),
        ("quadratic", {"replicas": 1}, 84),
        ("teacher", {}, 1_153),
        ("teacher", {"inputs": 4, "width": 8}, 49),
        ("markov", {}, 2_372),
        ("lm-transformer", {}, 120_576),
        ("lm-transformer", {"tied": False}, 120_576 + 256 * 64),
        ("lm-transformer", {"positions": "rotary"}, 120_576 - 64 * 64),
        ("lm-lstm", {}, 2 * 256 * 64 + 256 + 2 * (2 * 4 * 64 * 64 + 4 * 64)),
    ],
)
def test_parameter_counts(name, fields, count) -> None:
    workload = load(name, fields)
    with torch.device("meta" if workload.dataset in STORED else "cpu"):
        model = workload.model()
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("digits-mlp", "validation_error < 0.04"),
        ("digits-softmax", "validation_error < 0.04"),
        ("mnist-fc", "validation_error < 0.03"),
        ("mnist-simple-cnn", "validation_error < 0.01"),
        ("fashion-mnist-simple-cnn", "validation_error < 0.10"),
        ("cifar10-resnet8", "validation_error < 0.30"),
        ("quadratic", "validation_loss < 0.01"),
        ("teacher", "validation_excess_loss < 0.02"),
        ("markov", "validation_excess_loss < 0.01"),
    ],
)
def test_targets_are_the_protocols(name, target) -> None:
    assert load(name).target == target


def test_one_value_an_example(workload) -> None:
    stored = stored_batch(workload)
    augmented = workload.augment(stored_batch(workload), torch.Generator().manual_seed(5))
    for part, training in ((augmented, True), (stored, False)):
        batch = workload.transform(part, training=training)
        output = workload.forward(workload.model(), batch)
        check_per_example(workload.loss(output, batch), 6, "loss", workload)
        check_metrics(workload.metrics(output, batch), 6, workload)


def test_transforms_are_float32_and_deterministic(workload) -> None:
    stored = stored_batch(workload)
    first, second = (workload.transform(stored, training=t) for t in (True, False))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    if workload.dataset not in ("none", "markov"):
        tokens = isinstance(workload, LanguageModel)
        assert first[0].dtype == (torch.int64 if tokens else torch.float32)


def test_models_come_from_the_global_generator(workload) -> None:
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(torch.cat([p.detach().flatten() for p in workload.model().parameters()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_augmentation_comes_from_the_given_generator(workload) -> None:
    batch = stored_batch(workload)
    assert workload.augments == workload.name.startswith(("cifar", "quadratic"))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    drawn = [workload.augment(batch, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(drawn[0], drawn[1], strict=True):
        assert torch.equal(a, b)
    if workload.augments:
        assert any(not torch.equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))


def test_cifar_augmentation_shifts_and_mirrors_whole_images() -> None:
    """Each augmented image is a window of the padded image or of its mirror, all channels alike."""
    plain = load("cifar10-resnet8")
    augmented = load("cifar10-resnet8", {"augmented": True})
    x = torch.randint(1, 256, (40, 3, 32, 32), dtype=torch.uint8)
    batch = (x, torch.zeros(40, dtype=torch.long))
    assert not plain.augments
    assert plain.augment(batch, torch.Generator())[0] is x
    shifted = augmented.augment(batch, torch.Generator().manual_seed(0))[0]
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))

    def window(image, dy: int, dx: int, mirrored: bool):
        cut = image[:, dy : dy + 32, dx : dx + 32]
        return cut.flip(2) if mirrored else cut

    seen = set()
    for i in range(40):
        found = [
            (dy, dx, mirrored)
            for dy in range(9)
            for dx in range(9)
            for mirrored in (False, True)
            if torch.equal(window(padded[i], dy, dx, mirrored), shifted[i])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {mirrored for _, _, mirrored in seen} == {False, True}
    assert len({(dy, dx) for dy, dx, _ in seen}) > 10
