"""Step Law's tables as final losses: a run a row, over sizes, tokens, batches and learning rates.

    git clone https://github.com/step-law/steplaw
    python examples/importers/step_law.py steplaw/data/dense_lr_bs_loss.csv dense.csv
    batchscale regimes dense.csv --optimal-batch --unit tokens

Li et al. 2025, Predictable Scale: Part I (arXiv:2503.04715): 1,911 runs of dense models, and 708 of
mixtures of experts in ``moe_lr_bs_loss.csv``. A row with ``batch_size``, ``examples`` and a loss is
a run that was measured at its end. The learning rate is minimized over, since it differs between
rows of one batch size; ``model``, a text, makes a curve of each of its values.
"""

import argparse
from pathlib import Path

import pandas as pd

SEQUENCE = 2048
"""Tokens of a sequence, where the file has no column ``seq_len``."""
SIZES = ("N", "Na")
"""Parameters; of experts also those that are active."""
SHAPE = ("h", "ffnh", "numh", "numl", "topk", "nume", "moeh", "moe_layer_enum_type")


def table(path: Path) -> pd.DataFrame:
    """Their table under the names that batchscale reads; the loss is their smoothed one."""
    theirs = pd.read_csv(path)
    smooth = next(name for name in ("smooth loss", "smooth_loss", "loss") if name in theirs)
    tokens = theirs.get("seq_len", pd.Series(SEQUENCE, theirs.index))
    # A batch is of ``bs`` sequences. Steps are ``ti``, or those of ``D`` tokens where it is empty.
    steps = theirs["D"] / (theirs["bs"] * tokens)
    steps = theirs.get("ti", steps).fillna(steps).round()
    return pd.DataFrame(
        {
            "batch_size": theirs["bs"],
            "examples": (steps * theirs["bs"]).astype("int64"),
            "tokens_per_example": tokens,
            "learning_rate": theirs["lr"],
            "train_loss": theirs[smooth],
            "model": models(theirs),
            "workload": "step-law",
            "optimizer": "adamw",
            "schedule": "cosine",
            "example_unit": "sequence",
        }
    )


def models(theirs: pd.DataFrame) -> pd.Series:
    """``dense N=214663680``: the sizes, and what of the shape a size does not determine."""
    sizes = [name for name in SIZES if name in theirs]
    shapes = theirs.groupby(sizes)[[name for name in SHAPE if name in theirs]].nunique().max()
    named = [*sizes, *shapes.index[shapes > 1]]
    kind = "moe" if "Na" in theirs else "dense"
    texts = theirs[named].astype(str).apply(lambda row: " ".join(row.index + "=" + row), axis=1)
    return kind + " " + texts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    if not given.source.exists():
        parser.error(f"{given.source} does not exist")
    table(given.source).to_csv(given.output, index=False)
