"""Lines of Python by part: what there is, the ceiling that holds now, and the aim.

``make lines`` prints them. A commit that deletes lowers the ceilings of its parts. One is raised
only for a feature that was planned, by the commit that merges it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Folders whose lines are counted together: all lines, of code, comments, and blank ones."""

    name: str
    folders: tuple[str, ...]
    ceiling: int
    aim: int

    @property
    def lines(self) -> int:
        """In the files that git tracks, or would."""
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--"]
        command = [*listed, *(f"{folder}/*.py" for folder in self.folders)]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        files = {ROOT / name for name in names.stdout.splitlines()}
        return sum(len(file.read_bytes().splitlines()) for file in files if file.is_file())


PARTS = (
    Part(name="workloads", folders=("workloads",), ceiling=5_334, aim=3_900),
    Part(name="experiments", folders=("experiments",), ceiling=34_127, aim=22_000),
    Part(name="analysis", folders=("analysis",), ceiling=18_285, aim=9_500),
    Part(name="results", folders=("results",), ceiling=10_200, aim=5_000),
    Part(name="batchscale", folders=("batchscale",), ceiling=9_225, aim=3_400),
    Part(
        name="validation, benchmarks, docs",
        folders=("validation", "benchmarks", "docs"),
        ceiling=7_367,
        aim=4_200,
    ),
    Part(name="tests", folders=("tests",), ceiling=66_592, aim=36_000),
)


def main() -> None:
    """Print a row a part, and the sums."""
    rows = {part.name: (part.lines, part.ceiling, part.aim) for part in PARTS}
    all_lines, ceiling, aim = map(sum, zip(*rows.values(), strict=True))
    print(f"{'part':30} {'lines':>8} {'ceiling':>8} {'aim':>8}")
    for name, numbers in {**rows, "all": (all_lines, ceiling, aim)}.items():
        print(f"{name:30} " + " ".join(f"{number:8,}" for number in numbers))


if __name__ == "__main__":
    main()
