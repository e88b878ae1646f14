"""Imports run one way and without cycles, nothing heavy is imported early, files stay short."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("batchscale", "workloads", "experiments", "results", "analysis")
"""What the wheel holds."""
MAY_IMPORT = {
    "workloads": {"workloads"},
    "results": {"results"},
    "experiments": {"experiments", "workloads", "results"},
    "analysis": {"analysis", "results"},
    "batchscale": set(PACKAGES),
    "validation": {"validation", "analysis", "results"},
}
TRAINING_ONLY = {"torch", "torchvision", "ray"}
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.is_file()
)
READING = [path for path in MODULES if path.relative_to(ROOT).parts[0] in ("results", "analysis")]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[str]:
    """Top-level names that a file imports anywhere in it; type checking's too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_a_package_imports_nothing_above_it() -> None:
    wrong = [
        f"{name_of(path)} imports {above}"
        for path in [*MODULES, *(ROOT / "validation").rglob("*.py")]
        for above in (set(imported(path)) & {*PACKAGES, "validation"})
        - MAY_IMPORT[path.relative_to(ROOT).parts[0]]
    ]
    assert not wrong


def test_what_reads_results_never_names_torch_or_ray() -> None:
    wrong = [name_of(path) for path in READING if set(imported(path)) & TRAINING_ONLY]
    assert not wrong


def imports_between_modules() -> dict[str, set[str]]:
    """Of each module of ours those that it imports anywhere in it, type checking's too."""
    names = {module_name(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        targets: set[str] = set()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
                # `from package import module` needs the module, and what else it names the package.
                targets |= inner | ({node.module} if len(inner) < len(node.names) else set())
        graph[name] = (targets & names.keys()) - {name}
    return graph


def cycles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Modules that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        seen: set[str] = set()
        stack = list(graph[name])
        while stack:
            target = stack.pop()
            if target not in seen:
                seen.add(target)
                stack += graph[target]
        return seen

    for name in graph:
        reached[name] = reach(name)
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph
    }
    return [set(group) for group in groups if group]


def test_no_import_cycle() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [{"a", "b", "c"}]
    assert cycles(imports_between_modules()) == []


def test_folders_stay_small() -> None:
    folders = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {name_of(folder): n for folder, n in folders.items() if n > 15} == {}


def test_the_analysis_group_has_what_reading_results_imports() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    named = {text.split(">=")[0].lower() for text in groups["analysis"]}
    brought = {"numpy", "pil", "yaml"}  # by pandas, by matplotlib, and by PyYAML
    used = {
        name.lower()
        for path in READING
        for name in imported(path)
        if name not in sys.stdlib_module_names and name not in PACKAGES
    }
    assert used <= named | brought
    assert not named & TRAINING_ONLY


def test_no_relative_imports() -> None:
    relative = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert not relative


def test_files_stay_short() -> None:
    files = [
        *MODULES,
        *(ROOT / "validation").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]
    long = {name_of(f): n for f in files if (n := len(f.read_text().splitlines())) > 400}
    assert not long


def test_every_package_folder_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    chosen = settings["packages"]["find"]
    found = find_packages(str(ROOT), include=chosen["include"], exclude=chosen["exclude"])
    assert set(found) == {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES}


def test_every_data_file_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    held = {
        file
        for named, patterns in settings["package-data"].items()
        for package in (PACKAGES if named == "*" else [named])
        for pattern in patterns
        for file in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    missing = [name for name in tracked if not name.endswith(".py") and ROOT / name not in held]
    assert not missing


def run_isolated(code: str, *, block: tuple[str, ...] = ()) -> str:
    """The output of Python code in a process of its own, where ``block`` cannot be imported."""
    guard = f"""
        import sys

        class Block:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {block!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)

        sys.meta_path.insert(0, Block())
    """
    script = textwrap.dedent(guard) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_imports_nothing_heavy() -> None:
    out = run_isolated(
        """
        import sys
        from batchscale.cli import main
        try:
            main(["--help"])
        except SystemExit as end:
            assert not end.code
        heavy = {"torch", "ray", "pandas", "numpy", "pyarrow", "duckdb", "scipy", "matplotlib",
                 "pydantic", "yaml", "sklearn", "rich"}
        print("heavy:", sorted(heavy & set(sys.modules)))
        """
    )
    assert "heavy: []" in out
    assert "sweep" in out


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import batchscale", "torch pandas typer"),
        (
            "from batchscale import report; report(step=1, loss=1.0)",
            "torch numpy pandas matplotlib ray",
        ),
        ("import analysis", "torch ray matplotlib seaborn scipy duckdb"),
        ("from analysis import curves, regimes, figures; figures.names()", "torch matplotlib"),
        (
            "from workloads import data_root, names; names(); data_root()",
            "torch torchvision numpy sklearn",
        ),
    ],
)
def test_what_imports_nothing_heavy(code: str, heavy: str) -> None:
    out = run_isolated(f"{code}\nimport sys\nprint({{*{heavy.split()}}} & {{*sys.modules}})")
    assert out.splitlines()[-1] == "set()"


@pytest.mark.slow
def test_a_group_starts_without_torch_and_its_ranks_without_tune() -> None:
    """Each takes a second or two of every start."""
    out = run_isolated(
        """
        import sys
        from experiments.execution.ray.ranks import group
        print("group:", {"torch", "ray.tune"} & {*sys.modules})
        from experiments.execution.ray.ranks import rank
        print("rank:", {"torch", "ray.tune"} & {*sys.modules})
        """
    )
    assert out.splitlines() == ["group: set()", "rank: {'torch'}"]


@pytest.mark.slow
def test_results_and_analysis_import_without_torch_and_ray() -> None:
    names = [module_name(path) for path in READING]
    code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)\n"
    run_isolated(code, block=("torch", "torchvision", "ray", "sklearn", "experiments", "workloads"))


def test_regimes_plot_and_query_work_without_torch_and_ray(tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    rows = [f"{2**k},{round(100 * (1 + 64 / 2**k))}" for k in range(12)]
    curve.write_text("batch_size,steps\n" + "\n".join(rows) + "\n")
    figure = tmp_path / "steps.png"
    out = run_isolated(
        f"""
        import batchscale as bs
        run = bs.open({str(curve)!r})
        (curve,) = run.regimes()
        print(curve["critical_batch_size"]["value"])
        print(run.query("SELECT count(*) AS n FROM trials").n[0])
        import matplotlib
        matplotlib.use("agg")
        bs.plot("steps", {str(curve)!r}, output={str(figure)!r})
        """,
        block=("torch", "torchvision", "ray", "sklearn"),
    )
    critical, count = out.split()
    assert 55 < float(critical) < 75
    assert count == "12"
    assert figure.is_file()


def test_a_results_folder_where_one_works_hides_nothing(tmp_path: Path) -> None:
    """The default results folder is results/runs: a script beside it must still find ours."""
    (tmp_path / "results" / "runs").mkdir(parents=True)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "script.py").write_text("import results, experiments.plan; print(results.__file__)")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).name == "__init__.py"
