"""What a study's packs were trained under: a snapshot of other settings is of no use."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import PurePosixPath

from experiments.plan import Study


def settings_hash(study: Study) -> str:
    """Of everything in a study that decides its training, but for where and how it is laid out."""
    content = asdict(study)
    # A pack that was stopped goes on under whatever ``keep`` holds by then.
    searching = (
        "trials",
        "keep",
        "search",
        "search_id",
        "search_seed",
        "extend",
        "repeats",
        "estimator",
    )
    for name in ("experiment", "layout", "engine", *searching):
        del content[name]
    del content["optimizer_name"], content["schedule_name"]
    # The study's id holds the code; the path is another one where a staged copy stands.
    content["schedule"] = PurePosixPath(study.schedule).name
    content["technique"] = {PurePosixPath(n).name: v for n, v in study.technique.items()}
    del content["workload"]["base"]  # a staged copy stands elsewhere
    del content["workload"]["spec"]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
