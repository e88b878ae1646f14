"""The shape of the house: imports run one way, nothing heavy early, files stay short."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def imported(path: Path) -> Iterator[str]:
    """Top-level names that a file imports anywhere in it; type checking's too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_package_imports_nothing_above_it(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    above = (set(imported(path)) & set(PACKAGES)) - MAY_IMPORT[package]
    assert not above, f"{name_of(path)} imports {', '.join(sorted(above))}"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.relative_to(ROOT).parts[0] in ("results", "analysis")],
    ids=name_of,
)
def test_what_reads_results_never_names_torch_or_ray(path: Path) -> None:
    assert not set(imported(path)) & TRAINING_ONLY


def test_the_analysis_group_has_what_reading_results_imports() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    named = {text.split(">=")[0].lower() for text in groups["analysis"]}
    brought = {"numpy", "pil"}  # by pandas, and by matplotlib
    used = {
        name.lower()
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in ("results", "analysis")
        for name in imported(path)
        if name not in sys.stdlib_module_names and name not in PACKAGES
    }
    assert used <= named | brought
    assert not named & TRAINING_ONLY


def test_no_relative_imports() -> None:
    found = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert not found


def test_files_stay_short() -> None:
    files = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    long = {name_of(f): n for f in files if (n := len(f.read_text().splitlines())) > 400}
    assert not long


def test_every_package_folder_is_listed() -> None:
    """The wheel holds what pyproject.toml lists, and nothing finds a folder that it leaves out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES}
    assert set(settings["packages"]) == folders | set(settings["package-data"])


def test_every_data_file_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    held = {
        file
        for package, patterns in settings["package-data"].items()
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


def test_import_batchscale_imports_nothing_heavy() -> None:
    out = run_isolated(
        "import batchscale, sys; print({'torch', 'pandas', 'typer'} & {*sys.modules})"
    )
    assert out.strip() == "set()"


def test_results_and_analysis_import_without_torch_and_ray() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in ("results", "analysis")
    ]
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
        (found,) = run.regimes()
        print(found["critical_batch_size"]["value"])
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
