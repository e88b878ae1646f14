"""Importers and exporters: packaged ones by their files' names, a user's as ``file.py:Name``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest

import batchscale as bs
from results.errors import ResultsError
from results.extensions import KINDS, Extension, Registry
from results.imports import Imported
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear
from tests.test_imports import run_isolated

PACKAGED = [(verb, name) for verb in KINDS for name in KINDS[verb].names()]

USERS = '''
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from results.exports import Exported
from results.imports import commit_import


def import_runs(
    path,
    results,
    *,
    project: Annotated[str, "The experiment."],
    factor: Annotated[float, "Steps are multiplied by it."] = 1.0,
    skip: Annotated[list[int] | None, "Batch sizes to leave out."] = None,
    rename: Annotated[Mapping[str, str] | None, "Optimizers: --rename SGD=sgd."] = None,
    exact: Annotated[bool, "Refuse steps that are not whole."] = False,
    unit: Annotated[Literal["step", "epoch"], "What is counted."] = "step",
):
    """Runs of our own logger."""
    studies, trials = [], []
    for number, run in enumerate(json.loads(Path(path).read_text())):
        if run["batch_size"] in (skip or ()):
            continue
        steps = run["steps"] * factor
        if exact and steps % 1:
            raise ValueError(f"{steps} steps")
        group = {
            "study": f"s{number}", "source": project, "workload": unit,
            "batch_size": run["batch_size"],
            "optimizer": (rename or {}).get(run["optimizer"], run["optimizer"]),
        }
        studies.append(group)
        trials.append(
            {
                **group, "trial": f"{project}-{number}", "role": "repeat", "status": "COMPLETE",
                "stop_reason": "target", "steps_to_target": steps,
            }
        )
    source = {"source": project, "address": str(path), "checksum": str(factor)}
    return commit_import(
        results, experiment=project, sources=[source], studies=studies, trials=trials
    )


def export_lines(
    results, output, progress=None, *, indent: Annotated[int | None, "Blanks."] = None
):
    rows = results.trial_rows.select(["trial", "steps_to_target"]).to_pylist()
    Path(output).mkdir(exist_ok=True)
    (Path(output) / "trials.json").write_text(json.dumps(rows, indent=indent))
    done = Exported(output=str(output), trials=len(rows), of=len(rows), measurements=0,
                    changed=len(rows), next="cat trials.json", notes=["one file"])
    progress and progress(done)
    return done


def undescribed(path, results, *, project=None):
    """An option without a description."""


def taken(path, results, *, results_: Annotated[str, "x"] = "", help: Annotated[str, "y"] = ""):
    """An option that the command has itself."""
'''
RUNS = [(8, "SGD", 100), (16, "SGD", 55), (32, "adam", 40.5), (64, "adam", 36)]


@pytest.fixture
def users(here: Path) -> Path:
    runs = [{"batch_size": b, "optimizer": o, "steps": s} for b, o, s in RUNS]
    (here / "runs.json").write_text(json.dumps(runs))
    (here / "mine.py").write_text(USERS)
    return here


@pytest.mark.parametrize(("verb", "name"), PACKAGED)
def test_every_kind_says_what_it_is_and_what_its_options_are(
    command: Command, here: Path, verb: str, name: str
) -> None:
    assert bs.list(f"{verb}s")[name]
    kind = KINDS[verb].get(name)
    help_ = " ".join(command(verb, name, "--help").out.split())
    for each in kind.parameters.values():
        assert each.flag in help_
        assert " ".join(each.option.help.split()) in help_
    arguments = {"import": [".", "--results", "runs"], "export": ["own", "-o", "out"]}[verb]
    answer = command(verb, name, *arguments, "--no-such-option", "x")
    flags = ", ".join(each.flag for each in kind.parameters.values()) or "none"
    clear(answer, f"{verb} {name} has no option --no-such-option", hint=f"{name}: {flags}")
    with pytest.raises(ResultsError, match=f"{verb} {name} has no option --no-such"):
        kind(here, here / "runs", no_such=1)
    assert not list(here.iterdir())


@pytest.mark.usefixtures("users")
def test_a_users_importer_has_the_options_of_its_signature(command: Command) -> None:
    words = ["import", "mine.py:import_runs", "runs.json", "--results", "kept"]
    options = ["--project", "ours", "--factor", "2", "--skip", "64", "--rename", "SGD=sgd"]
    done = command(*words, *options, "--exact", "--unit", "epoch")
    assert done.out == "imported 3 trials of 3 studies into kept as experiment ours\n", done.err
    trials = bs.open("kept").trials.sort_values("batch_size")
    assert trials.steps_to_target.tolist() == [200, 110, 81]
    assert trials.optimizer.tolist() == ["sgd", "sgd", "adam"]
    assert set(trials.workload) == {"epoch"}
    again = command(*options, *words)  # options before or behind
    assert again.status == 2
    again = command(words[0], *options, *words[1:], "--exact", "--unit", "epoch")
    assert "already" in again.out
    python = bs.take_in("mine.py:import_runs", "runs.json", results="python", project="ours")
    assert (python.trials, python.fresh) == (4, True)
    help_ = command(*words[:2], "--help").out
    assert "--exact" in help_
    assert "Batch sizes to leave out." in help_


@pytest.mark.usefixtures("users")
def test_a_users_exporter(command: Command, here: Path) -> None:
    bs.take_in("mine.py:import_runs", "runs.json", results="kept", project="ours")
    done = command("export", "mine.py:export_lines", "kept", "-o", "out", "--where",
                   "batch_size > 8", "--indent", "1")  # fmt: skip
    assert done.out == "exported 3 trials with 0 measurements to out\nnext: cat trials.json\n"
    assert done.err == "note: one file\n"
    text = (here / "out" / "trials.json").read_text()
    assert [row["steps_to_target"] for row in json.loads(text)] == [55, 40.5, 36]
    assert "\n " in text
    seen: list[int] = []
    bs.export("mine.py:export_lines", "kept", output="out", progress=lambda d: seen.append(d.of))
    bs.open("kept").export("mine.py:export_lines", output="out", indent=None)
    assert seen == [4]
    assert "\n" not in (here / "out" / "trials.json").read_text()


@pytest.mark.parametrize(
    ("kind", "options", "says", "hint"),
    [
        ("mine.py:import_run", [], "mine.py has no function 'import_run'", "import_runs?"),
        ("other.py:x", [], "import other.py:x: there is no file other.py", "this folder"),
        ("mine.py:import_runs", ["--facto", "1"], "has no option --facto", "--project, --factor"),
        ("mine.py:import_runs", ["--rename", "x"], "--rename x is not NAME=VALUE", "SGD=sgd"),
        ("mine.py:undescribed", [], "the option project has no description", "Annotated"),
        ("mine.py:taken", [], "the command itself has an option --help", "another name"),
    ],
)
@pytest.mark.usefixtures("users")
def test_wrong_words_are_one_line(
    command: Command, kind: str, options: list[str], says: str, hint: str
) -> None:
    required = ["--project", "p"] if kind.endswith("import_runs") else []
    clear(command("import", kind, "runs.json", *required, *options), says, hint=hint)


@pytest.mark.usefixtures("users")
def test_an_error_in_the_users_function_has_its_traceback(command: Command) -> None:
    words = ["import", "mine.py:import_runs", "runs.json", "--project", "p"]
    answer = command(*words, "--factor", "1.5", "--exact", "--results", "kept")
    assert answer.status == 1
    assert 'mine.py", line' in answer.err
    assert "error: ValueError: 82.5 steps" in answer.err
    missing = command(*words[:3])
    assert missing.status == 2
    assert "--project" in missing.err
    with pytest.raises(ResultsError, match="needs --project"):
        bs.take_in("mine.py:import_runs", "runs.json")


def test_a_function_is_a_kind_too(here: Path) -> None:
    def ours(path: Path, results: Any, *, name: Annotated[str, "Whose."] = "") -> Imported | None:
        return Imported(name, f"{results}/{path.name}") if name else None

    assert bs.take_in(ours, here / "x.csv", results="runs", name="n").experiment == "n"
    assert Extension("import", "ours", ours).parameters["name"].type is str
    with pytest.raises(ResultsError, match="import ours returned NoneType, not Imported"):
        bs.take_in(ours, here / "x.csv")


def test_listing_loads_nothing_heavy() -> None:
    code = """
        import sys
        import batchscale
        assert batchscale.list("imports") and batchscale.list("exports")
        heavy = {"torch", "ray", "pandas", "numpy", "pyarrow", "duckdb", "tensorboardX"}
        print(sorted(heavy & {*sys.modules}), [m for m in sys.modules if "results.imports" in m])
    """
    assert run_isolated(code) == "[] []\n"


def test_a_file_in_the_folder_is_all_that_a_kind_needs() -> None:
    for verb in KINDS:
        folder = Path(bs.__file__).parents[1] / "results" / f"{verb}s"
        files = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
        assert set(Registry(verb).names()) == files
