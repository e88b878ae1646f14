"""Who may connect to a Ray that a sweep has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.execution.ray import token
from tests.test_imports import ROOT

PROGRAM = """
import os, subprocess, sys
from pathlib import Path

from experiments.execution.ray.start import LocalRay

ray_of_sweep = LocalRay(num_cpus=1)
ray_of_sweep.wait()
assert ray_of_sweep.ours
import ray

assert not [name for name in os.environ if name.startswith("RAY_AUTH")]
address = ray.get_runtime_context().gcs_address
secrets = set()
for environment in Path("/proc").glob("[0-9]*/environ"):
    try:
        lines = environment.read_text().split("\\0")
    except OSError:
        continue
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    if f"/{os.getpid()}/" in variables.get("BATCHSCALE_STARTED_BY", ""):
        secrets.add(variables["RAY_AUTH_TOKEN"])
print("tokens", len(secrets), {len(secret) for secret in secrets})
# Else Ray takes another address of this machine in the place of 127.0.0.1, where nobody listens.
HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
connect = f"import ray; ray.init(address={address!r}); print('inside')"
for name, variables in (
    ("none", {}),
    ("other", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}),
    ("its own", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.pop()}),
):
    done = subprocess.run([sys.executable, "-c", connect], env={**os.environ, **variables, **HERE},
                          capture_output=True, text=True, timeout=300)
    print(name, "inside" in done.stdout)
ray_of_sweep.end()
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_stranger_is_refused(tmp_path: Path) -> None:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={**variables, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
    )  # fmt: skip
    expected = ["tokens 1 {64}", "none False", "other False", "its own True"]
    assert done.stdout.splitlines() == expected, done.stderr
    assert not (tmp_path / ".ray" / "auth_token").exists()


def test_a_token_is_new_each_time_and_leaves_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token, "reload_token", lambda: None)
    for name in (token.MODE, token.TOKEN, token.PATH):
        monkeypatch.delenv(name, raising=False)
    tokens = set()
    for _ in range(2):
        with token.private_token():
            assert os.environ[token.MODE] == "token"
            tokens.add(os.environ[token.TOKEN])
        assert not {token.MODE, token.TOKEN} & os.environ.keys()
    assert {len(each) for each in tokens} == {64}
    assert len(tokens) == 2


@pytest.mark.parametrize("name", [token.MODE, token.TOKEN, token.PATH])
def test_whoever_has_chosen_keeps_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (token.MODE, token.TOKEN, token.PATH):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "chosen")
    with token.private_token():
        assert {k: v for k, v in os.environ.items() if k.startswith("RAY_AUTH")} == {name: "chosen"}
    assert os.environ[name] == "chosen"
