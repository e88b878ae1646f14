"""Names that logs give to batch sizes, steps, runs and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pandas as pd

from results.user_tables.runs import repeats
from results.user_tables.table_file import TableFile, number

AXES = {
    "step": (
        *("step", "global_step", "train_global_step", "trainer_global_step", "num_updates"),
        *("updates", "update", "optimizer_step", "iteration", "iter", "iters", "itr"),
        *("current_steps", "time_batch"),  # of LLaMA-Factory and of Composer
    ),
    "steps": ("steps", "steps_to_target"),
    "tokens": (
        *("tokens", "tokens_seen", "total_tokens", "num_tokens", "consumed_tokens", "train_tokens"),
        "num_input_tokens_seen",
    ),
    "examples": (
        *("examples", "examples_seen", "num_examples", "samples", "samples_seen"),
        *("consumed_samples", "consumed_train_samples", "train_samples"),
    ),
    "run": ("run", "run_id", "_run", "run_uuid", "trial_id", "run_name"),
    "run_state": ("state", "status", "run_status", "trial_status"),
}
"""What a row is of: these are never in a run's configuration."""
SETTINGS = {
    "learning_rate": ("learning_rate", "lr"),
    "weight_decay": ("weight_decay", "wd"),
    "optimizer": ("optimizer", "optim", "opt", "optimizer_name"),
    "seed": ("seed", "random_seed"),
    "tokens_per_example": ("tokens_per_example",),
}
SEQUENCE = (
    *("seq_len", "seq_length", "sequence_length", "max_seq_len", "max_seq_length", "block_size"),
    *("context_length", "context_len", "ctx_len", "n_ctx"),
)
"""Tokens of an example, if the batch size counts sequences."""
GLOBAL = (
    *("global_batch_size", "total_train_batch_size", "total_batch_size", "effective_batch_size"),
    *("global_batch", "global_train_batch_size"),
)
"""The batch size of an update, beyond doubt."""
PLAIN = ("batch_size", "train_batch_size", "batchsize", "bs")
PER_DEVICE = (
    *("per_device_train_batch_size", "per_gpu_train_batch_size", "per_device_batch_size"),
    *("train_micro_batch_size_per_gpu", "micro_batch_size", "device_batch_size"),
    *("local_batch_size", "per_device_batch", "per_gpu_batch_size"),
)
ACCUMULATED = (
    *("gradient_accumulation_steps", "grad_accumulation_steps", "grad_accum_steps"),
    *("accumulate_grad_batches", "accumulation_steps", "gradient_accumulation", "grad_accum"),
    *("accumulate", "accumulation", "accum_steps"),
)
DEVICES = (
    *("world_size", "n_gpu", "n_gpus", "num_gpus", "ngpus", "gpus", "num_devices", "devices"),
    *("n_devices", "num_processes", "data_parallel_size", "dp_size"),
)
COUNTS = ("epoch", "epochs", "training_iteration", "intermediate_step", "round")
"""What is no number of updates, and may take several."""
KEYS = ("key", "metric", "metric_name", "tag", "variable")
"""Columns that name the metric of a row's value."""
SPLIT = ("split", "phase", "subset", "mode", "stage", "event", "set")
"""Columns that name the part of the data."""
PARTS = {
    **dict.fromkeys(("train", "training"), "train_"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val_"),
    **dict.fromkeys(("eval", "evaluation"), "eval_"),
    "test": "test_",
}
"""Values of a column that names the part of the data, and what names of metrics begin with."""
FAILED = {
    *("FAIL", "FAILED", "FAILURE", "PRUNED", "CRASHED", "ERROR", "KILLED", "OOM", "TIMEOUT"),
    *("DIVERGED", "INFEASIBLE", "INCOMPLETE", "DNF", "STOPPED", "CANCELED", "CANCELLED"),
}
ENDED = {"COMPLETE", "COMPLETED", "FINISHED", "TERMINATED", "SUCCESS", "SUCCEEDED", "DONE", "OK"}
NOT_ENDED = {"RUNNING", "PENDING", "PREEMPTED", "PREEMPTING", "WAITING"}
STATES = FAILED | ENDED | NOT_ENDED

_CONFIG = ("config.", "config/", "params.", "params/", "hparams.", "hparams/", "args.")
_OTHER = ("metrics.", "summary.")
_PREFIXES_OF_OPTUNA = ("params_", "user_attrs_")
_ENVIRONMENT = re.compile(
    r"_?(timestamp|runtime|hostname|host|node|node_ip|ip|pid|date|datetime|wall_?time|time|duration"
    r"|created(_at)?|started(_at)?|updated(_at)?|heartbeat(_at)?|logdir|log_dir|output_dir"
    r"|git_(commit|sha|hash)|commit|hostname_\w+|(start|end)_time|time_\w+|datetime_\w+|user|gpu"
    r"|done|experiment_id|artifact_uri|wandb(_\w+)?|tags_mlflow_\w+)"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T _]|$)|(\d+ days?,? )?\d+:\d\d(:\d\d(\.\d+)?)?$")
_LONG = ("loss", "error", "entropy", "perplexity", "bits_per_byte", "accuracy", "recall", "score")
_SHORT = {
    *("ppl", "nll", "bpb", "wer", "mse", "mae", "fid", "acc", "top1", "top5", "auc", "f1", "bleu")
}
_SPLITS = ("train_", "validation_", "test_")


def plain(name: str) -> str:
    """``Global Step`` and ``global/step`` as ``global_step``."""
    return re.sub(r"\W+", "_", name.strip()).lower()


def is_of_optuna(table: TableFile) -> bool:
    """Whether a table is a data frame of Optuna's trials."""
    return table.has("state") or table.has("run_state")


def is_config(name: str, table: TableFile) -> bool:
    """Whether a column is a run's configuration by its name."""
    of_optuna = is_of_optuna(table) and name.startswith(_PREFIXES_OF_OPTUNA)
    return of_optuna or name.startswith(_CONFIG)


def short(name: str, table: TableFile) -> str:
    """A column without what says only where its tool keeps it."""
    for before in (*_CONFIG, *_OTHER, *(_PREFIXES_OF_OPTUNA if is_of_optuna(table) else ())):
        if name.startswith(before):
            return name.removeprefix(before)
    return name


def is_environment(name: str, cells: Sequence[object]) -> bool:
    """Whether a column says where and when a run was, which is no setting: by its name, or by
    dates, times of day, or how long something took."""
    times = all(cell is None or _TIME.match(str(cell)) for cell in cells)
    return times or bool(_ENVIRONMENT.fullmatch(plain(name)))


def of_split(name: str) -> bool:
    """Whether a column is of a part of the data, as metrics here are: ``train/loss``."""
    return plain(name).startswith(_SPLITS)


def is_metric(name: str) -> bool:
    """Whether a column is a metric by its name, however few values it has."""
    text = plain(name)
    known = any(part in text for part in _LONG) or bool(_SHORT & {*text.split("_")})
    return known or of_split(name)


def is_measured(table: TableFile, name: str) -> bool:
    """Whether a column is a metric by its name, and has numbers."""
    return is_metric(name) and any(number(cell) is not None for cell in table.columns[name])


def candidates(table: TableFile, aliases: Sequence[str], *, config: bool) -> Iterator[str]:
    """The columns that have one of ``aliases``, in their order, with that of the table in it.

    ``config``: those of the configuration too, by the last part of their names.
    """
    for alias in aliases:
        for name in table.columns:
            text = plain(short(name, table))
            if is_config(name, table):
                *before, last = re.split(r"[./]", short(name, table))
                of_training = not {"eval", "val", "valid", "validation", "test"} & {*before}
                text = plain(last) if config and of_training else ""
            if text == alias:
                yield name


def of_wandb_runs(table: TableFile) -> str | None:
    """The column that names the run of each row, in a table of runs of W&B, whose ``_step`` is the
    last call of each; ``None`` if the table is none. Where runs share a name, their states and
    steps that do not go on show that each row is one."""
    for name in candidates(table, ("name", "display_name", "id"), config=False):
        cells = table.columns[name]
        if not table.has("_step") or None in cells or len(cells) < 2:
            continue
        steps = pd.Series(map(number, table.columns["_step"]), dtype=float)
        states = any(candidates(table, ("state",), config=False))
        if len({*cells}) == len(cells) or (states and repeats(steps, pd.Series(cells))):
            return name
    return None


def differ(table: TableFile, first: str, other: str) -> bool:
    """Whether two columns have different cells in a row."""
    pairs = zip(table.columns[first], table.columns[other], strict=True)
    return any(
        a is not None and b is not None and a != b and (number(a) is None or number(a) != number(b))
        for a, b in pairs
    )
