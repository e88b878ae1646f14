"""Whose the packaged numbers are, and what has to be known of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

MADE = datetime(2026, 11, 21, tzinfo=UTC)
"""The time of every packaged row: fixed, so that the same numbers make the same rows."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A source: the file that its numbers are read from, and its row in ``sources``."""

    file: str
    citation: str
    licence: str
    address: str
    notes: str

    def checksum(self, path: Path) -> str:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


SOURCES: Mapping[str, Origin] = {
    "shallue_2019_digitized": Origin(
        file="shallue_2019_digitized.csv",
        citation="C. J. Shallue, J. Lee, J. Antognini, J. Sohl-Dickstein, R. Frostig, G. E. Dahl: "
        "Measuring the Effects of Data Parallelism on Neural Network Training. JMLR 20(112), 2019",
        licence="Apache-2.0",
        address="https://github.com/google-research/batch_science",
        notes="Read off the rendered figures of the authors' notebook, with a reading error of "
        "about 3 %, 10 % where another series hides the marker. Each point is the least of about "
        "100 tuned trials with one seed each: it is not minimized over again, and has no repeats.",
    ),
    "zhang_2024": Origin(
        file="llm_2024.csv",
        citation="H. Zhang, D. Morwani, N. Vyas, J. Wu, D. Zou, U. Ghai, D. Foster, S. Kakade: "
        "How Does Critical Batch Size Scale in Pre-training? arXiv:2410.21676, 2024",
        licence="MIT",
        address="https://github.com/hlzhang109/critical-batch-size",
        notes="Steps as the authors fitted them; their log says other steps in five places, which "
        "as_published keeps as steps_logged. An example is a sequence of 512 tokens of C4. "
        "adamw_ewa is AdamW with an exponential average of the weights.",
    ),
    "mlperf_rcp": Origin(
        file="mlperf_rcp.csv",
        citation="MLPerf Training and HPC reference convergence points, MLCommons; P. Mattson et "
        "al.: MLPerf Training Benchmark, MLSys 2020 (arXiv:1910.01500)",
        licence="Apache-2.0",
        address="https://github.com/mlcommons/logging",
        notes="Every row is a run with a seed of its own, of the newest usable version of each "
        "benchmark. The raw unit differs by benchmark: see as_published. Values are rounded to the "
        "evaluation period, hence ties. Hyperparameters were tuned again for each batch size, by "
        "different people.",
    ),
}
