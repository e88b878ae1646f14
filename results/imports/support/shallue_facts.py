"""Facts about the release of Shallue et al. 2019 that the release does not contain.

The archive is not read here: its checksum is the one that its authors print, and is recorded, not
checked.
"""

from __future__ import annotations

SOURCE = "shallue_2019"

ABOUT = {
    "source": SOURCE,
    "citation": "Shallue, C. J., Lee, J., Antognini, J., Sohl-Dickstein, J., Frostig, R., Dahl, "
    "G. E.: Measuring the Effects of Data Parallelism on Neural Network Training. Journal of "
    "Machine Learning Research 20(112), 1-49, 2019",
    "licence": "Apache-2.0 (google-research/batch_science)",
    "address": "https://storage.googleapis.com/batch_science_data/batch_science_data.tar.bz2",
    "checksum": "sha256:6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435",
    "notes": "trials and measurements as released; the checksum is the archive's, as published",
}
"""The columns of its row of ``sources``, without ``experiment``."""

COLLECTIONS = ("mnist_subsets", "imagenet_subsets", "solution_quality")
"""Sub-trees of the same shape: other data sets, and other budgets on the same ones."""

OPTIMIZERS = {"sgd": "sgd", "momentum": "momentum", "nesterov_momentum": "nesterov"}
"""The release's names, and those of the optimizers that compute the same here."""

TRAIN_EXAMPLES = {"mnist": 55_000, "fashion_mnist": 55_000, "cifar_10": 45_000}
"""Training examples, where the paper says them; the special sub-trees have others."""

_NAMES = {"cifar_10": "cifar10", "resnet_8": "resnet8", "simple_cnn_base": "simple-cnn"}

METAPARAMETERS = {
    "learning_rate_decay_steps": "decay_steps",
    "end_learning_rate_factor": "end_factor",
}
"""Names of metaparameters in the release -> names here."""

METRICS = {"classification_error": "error", "cross_entropy_error": "cross_entropy"}
SPLITS = {"train": "train", "val": "validation", "test": "test"}
SCALES = {"LINEAR_SCALE": "linear", "LOG_SCALE": "log", "REVERSE_LOG_SCALE": "reverse_log"}
STOP_REASONS = {"COMPLETE": "budget", "INFEASIBLE": "diverged", "INCOMPLETE": "error"}
"""Statuses of the release -> how such a trial ended."""

TRIALS = 100
FEWER_TRIALS = 50
_FEWER = {
    ("lm1b", "lstm", "nesterov_momentum"),
    ("common_crawl", "transformer_base", "nesterov_momentum"),
    ("lm1b", "transformer_shallow", "sgd"),
}


def plain_name(name: str) -> str:
    """A data set or model of the release as the packaged workloads name it: cifar_10 is cifar10."""
    return _NAMES.get(name, name.replace("_", "-"))


def trials_wanted(dataset: str, model: str, optimizer: str) -> int:
    """N: how many COMPLETE trials of each study, by id, its authors took the best of."""
    return FEWER_TRIALS if (dataset, model, optimizer) in _FEWER else TRIALS


def goal(dataset: str, model: str) -> str | None:
    """The goal that the paper's first figures have for a workload outside the special sub-trees;
    None where it is not known here."""
    if dataset == "mnist":
        return f"validation_error < {0.01 if model.startswith('simple_cnn') else 0.03:g}"
    return {
        "fashion_mnist": "validation_error < 0.1",
        "cifar_10": "validation_error < 0.3",
        "open_images_v4": "validation_average_precision > 0.31",
        "lm1b": "validation_cross_entropy < 3.9",
        "common_crawl": "validation_cross_entropy < 3.9",
        "imagenet": f"validation_error < {0.35 if model == 'vgg_11' else 0.25:g}",
    }.get(dataset)
