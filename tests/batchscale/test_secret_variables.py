"""Values of secret environment variables that an error quotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.storage.masking import without_variables
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import own
from tests.batchscale.test_secrets import parquet

SECRET = "hf_Zq81LmNoPq"


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY"),
        *("DB_PASSWORD", "my_secret", "TOKEN", "AWS_SESSION_TOKEN"),
    ],
)
def test_a_value_is_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SECRET)
    assert without_variables(f"refused: {SECRET}!") == "refused: ***!"


@pytest.mark.parametrize("name", ["PWD", "MONKEY", "RAY_AUTH_TOKEN_PATH", "KEYBOARD"])
def test_other_variables_are_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SECRET)
    assert without_variables(SECRET) == SECRET


def test_words_and_files_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "true")
    monkeypatch.setenv("A_CREDENTIALS", str(tmp_path))
    assert without_variables(f"true {tmp_path}") == f"true {tmp_path}"


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_of_a_workload(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    raising = "import os; raise OSError('refused ' + os.environ['SERVICE_TOKEN'])\n"
    (here / "mine.yaml").write_text(own(here, "return loss\n", raising))
    words = ("--debug",) if debug else ()
    answer = command(*words, "sweep", "mine.yaml", "--address", "none", "--results", "runs")
    assert answer.status == 1
    assert "OSError: refused ***" in answer.err
    assert SECRET not in answer.out + answer.err
    for path in (here / "runs").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            text = parquet(data) if path.suffix == ".parquet" else data.decode("latin1")
            assert SECRET not in text, path
