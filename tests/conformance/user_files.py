"""The users' files of the conformance suite, by the names that its studies give them."""

from __future__ import annotations

from tests.batchscale.blocks import blocks
from tests.experiments import (
    cut_workloads,
    layout_workloads,
    random_workloads,
    stream_workloads,
    technique_file,
    test_computation_techniques,
    test_data_techniques,
    test_evaluation,
    test_muon,
    test_named_batches,
    test_optimizers,
    test_randomness,
    test_streams,
    test_technique_hooks,
    test_transfer,
    test_user_optimizers,
    user_layouts,
)

STREAMS = stream_workloads.EVERY
FILES = {
    "attending.py": test_computation_techniques.MODELS,
    "counted.py": test_evaluation.COUNTED,
    "cut.py": cut_workloads.FILE,
    "deep.py": layout_workloads.FILE,
    "drops.py": test_randomness.WORKLOADS,
    "generated.py": test_streams.GENERATED,
    "grouped.py": test_user_optimizers.GROUPED,
    "hidden.py": test_muon.FILE,
    "hooks.py": test_technique_hooks.FILE,
    "images.py": test_data_techniques.IMAGES,
    "layouts.py": user_layouts.LAYOUTS,
    "my.py": technique_file.USER_FILE,
    "named.py": test_named_batches.PARTS,
    "padded.py": test_evaluation.PADDED,
    "prepared.py": test_transfer.PREPARED,
    "randomly.py": random_workloads.FILE,
    "rules.py": test_user_optimizers.RULES,
    "spread.py": test_evaluation.SPREAD,
    "streams.py": stream_workloads.FILE,
    "tied.py": test_optimizers.TIED,
    **{
        block.title: block.text
        for block in blocks("docs/optimizers.md")
        if block.language == "python"
    },
}
