"""Keys in the URI of a results dataset: nothing that is printed, shown or written holds them."""

from __future__ import annotations

import io
import json
import logging
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import batchscale as bs
from analysis.figure_data import Query
from batchscale.live.service import LiveReport
from batchscale.live.watch import Watch
from experiments.scheduling.messages import Note, ignore
from results.storage import location as module
from tests import memory_store
from tests.batchscale.conftest import Answer, Command
from tests.batchscale.test_bad_input import GOOD, own
from tests.marks import quick

URI = "s3://AKID42:wJal%2FrXU@bucket/runs?session_token=FwoGZX&region=eu"
SHOWN = "s3://***@bucket/runs"
PLAIN = f"{GOOD}engine: module\n"
SECRETS = ("AKID42", "wJal", "rXU", "FwoGZX")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """An object store in memory, which is what ``URI`` opens."""
    with memory_store.bucket() as bucket:

        def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
            assert uri == URI  # whoever opens it has all of it
            return bucket.filesystem, bucket.path

        monkeypatch.setattr(module, "from_uri", from_uri)
        monkeypatch.setattr(module.ObjectStore, "open", lambda *_: bucket.store)
        yield fsspec.filesystem("memory")


class Kept:
    """All that commands have said, and a look at all that they have written."""

    def __init__(self, command: Command, here: Path, store: fsspec.AbstractFileSystem) -> None:
        self._command, self._here, self._store = command, here, store
        self.said: list[str] = []
        self.given: set[str] = set()
        """Files of the user's own, which may hold what they like."""

    def write(self, name: str, text: str) -> None:
        (self._here / name).write_text(text)
        self.given.add(str(self._here / name))

    def __call__(self, *arguments: object, status: int = 0) -> Answer:
        answer = self._command(*arguments)
        assert answer.status == status, answer.err
        self.said.append(answer.out + answer.err)
        return answer

    def clean(self) -> None:
        written = {str(path): path.read_bytes() for path in self._here.rglob("*") if path.is_file()}
        for path in self._store.find("/bucket"):
            with self._store.open(path) as file:
                written[path] = file.read()
        written = {name: data for name, data in written.items() if name not in self.given}
        for name, data in [*written.items(), *((text, text.encode()) for text in self.said)]:
            text = f"{name}{parquet(data) if name.endswith('.parquet') else data.decode('latin1')}"
            found = [secret for secret in SECRETS if secret in text]
            assert not found, f"{name[:300]} holds {found}"


def parquet(data: bytes) -> str:
    table = pq.ParquetFile(io.BytesIO(data)).read()
    return f"{table.schema.metadata}{table.to_pylist()}"


@pytest.fixture
def kept(command: Command, here: Path, store: fsspec.AbstractFileSystem) -> Kept:
    return Kept(command, here, store)


@pytest.mark.slow
def test_commands_and_what_they_write(
    kept: Kept, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write("mine.yaml", PLAIN)
    kept.write("curve.csv", f"batch_size,steps,from\n8,100,{URI}\n16,60,{URI}\n32,40,{URI}\n")
    swept = kept("sweep", "mine.yaml", "--address", "none", "--results", URI)
    assert f"results: {SHOWN}?session_token=***&region=eu" in swept.out
    kept("sweep", "mine.yaml", "--address", "none", "--results", URI)
    kept("sweep", "mine.yaml", "--dry-run", "--results", URI)
    monkeypatch.setenv("BATCHSCALE_RESULTS", URI)
    kept("status")
    kept("status", URI, "--json")
    kept("regimes", URI, "--target", "validation_error < 0.9")
    kept("regimes", "curve.csv", "--json")
    kept("plot", "steps", URI, "-o", "steps.svg", "--target", "validation_error < 0.9")
    page = kept("report", URI, "-o", "a.html", "--target", "validation_error < 0.9")
    assert page.status == 0
    assert SHOWN in (here / "a.html").read_text()
    for form in ("table", "csv", "json", "latex", "markdown"):
        kept("query", "SELECT * FROM trials", URI, "--format", form)
        kept("query", "SELECT * FROM trials", "curve.csv", "--format", form)
    for suffix in ("csv", "json", "parquet", "tex", "md"):
        kept("query", "SELECT * FROM studies", URI, "-o", f"answer.{suffix}")
        kept("query", "SELECT * FROM trials", "curve.csv", "-o", f"own.{suffix}")
    kept("export", "tensorboard", URI, "-o", "tb")
    kept("import", "csv", "curve.csv", "--results", URI, "--citation", f"me, {URI}")
    kept("import", "csv", "curve.csv", "--results", URI, "--citation", f"me, {URI}")
    kept("query", "SELECT * FROM sources", URI)
    kept("report", "curve.csv", "-o", "b.html")
    trial = bs.open(URI).where("experiment = 'mine'").trials["trial"].iloc[0]
    kept("trial", "--from", trial, "--results", URI)
    kept.clean()


@pytest.mark.slow
def test_errors(kept: Kept, here: Path) -> None:
    kept.write("mine.yaml", own(here, "return loss\n", "raise OSError('" + URI + " is gone')\n"))
    kept.given.add(str(here / "mine.py"))
    answer = kept("sweep", "mine.yaml", "--address", "none", "--results", URI, status=1)
    assert f"--results '{SHOWN}" in answer.err  # how to meet the error again
    assert "OSError: s3://***@bucket/runs?session_token=***&region=eu is gone" in answer.err
    kept("sweep", URI, "--address", "none", status=1)
    kept("sweep", "mine.yaml", "--results", URI, "--set", f"grid.width={URI}", status=1)
    kept("trial", "--from", "zzz", "--results", URI, status=1)
    kept("check", f"{URI}:A", status=1)
    kept("regimes", URI, "--where", f"workload = '{URI}'", status=1)
    kept("query", f"SELECT '{URI}' FROM nothing", URI, status=1)
    kept("plot", "steps", URI, "-o", f"{URI}/a.png", status=1)
    kept("report", URI, "-o", f"{URI}.html", status=1)
    kept("export", "tensorboard", URI, "-o", URI, status=1)
    kept("import", "csv", f"{URI}.csv", "--results", URI, status=1)
    kept("import", "shallue", URI, "--results", URI, status=1)
    kept("new", f"{URI}.py", status=1)
    kept("status", "runs", URI, status=2)
    kept(URI, status=2)
    kept("status", f"--{URI}", status=2)
    files = module.ObjectStore.open(URI, fs.LocalFileSystem())  # the fixture's
    files.write("trials/mine/half.parquet", b"PAR1")
    for words in (["status"], ["regimes"], ["query", "SELECT 1"], ["report"]):
        assert f"{SHOWN}/trials/mine/half.parquet" in kept(*words, URI, status=1).err
        kept("--debug", *words, URI, status=1)
    files.delete("trials/mine/half.parquet")
    kept.clean()


def test_a_key_in_an_experiment_is_refused(kept: Kept, here: Path) -> None:
    """What an experiment says is written into its results, and into the identity of its trials."""
    text = own(here, "    seen = [0]\n", f"    seen = [0]\n    address: str = '{URI}'\n")
    (here / "mine.yaml").write_text(text)
    first = kept("sweep", "mine.yaml", "--address", "none", "--results", URI, status=1)
    assert "field 'address' of workload Mine holds a key" in first.err
    own(here, "    seen = [0]\n", "    seen = [0]\n    address: str = ''\n")
    (here / "mine.yaml").write_text(text.replace("grid:\n", f"grid:\n  address: {URI}\n"))
    second = kept("sweep", "mine.yaml", "--address", "none", "--results", URI, status=1)
    assert "mine.yaml:3: grid.address holds a key" in second.err
    kept.given |= {str(path) for path in here.glob("mine.*")}
    kept.clean()


@pytest.mark.parametrize("swept", quick([False, True], 1))
def test_the_served_page(
    kept: Kept, here: Path, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if swept:
        (here / "mine.yaml").write_text(PLAIN)
        kept("sweep", "mine.yaml", "--address", "none", "--results", URI)
    with LiveReport(
        Query(sources=[URI], target="validation_error < 0.9"), port=0, say=kept.said.append
    ) as served:
        threading.Thread(target=served.server.serve_forever, args=(0.01,), daemon=True).start()
        for name in ("", "state.json"):
            with urllib.request.urlopen(served.server.url + name) as answer:
                kept.said.append(answer.read().decode())
        assert served.watch.stop(patience=120)
        served.watch.update()
        with urllib.request.urlopen(f"{served.server.url}state.json") as answer:
            kept.said.append(answer.read().decode())
        served.server.shutdown()
    assert json.loads(kept.said[-1])["status"]["source"].startswith(SHOWN)

    def forever(_: LiveReport) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveReport, "forever", forever)
    monkeypatch.setattr(Watch, "start", lambda _: None)
    assert f"serving {SHOWN}" in kept("serve", URI, "--port", "0", status=130).out
    kept.clean()


@pytest.mark.slow
def test_objects(kept: Kept, here: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (here / "mine.yaml").write_text(PLAIN)
    notes: list[object] = []
    run = bs.sweep("mine.yaml", results=URI, address="none", observer=notes.append)
    assert run.results.location is not None
    again = bs.open(run.results.location)  # what opens it again
    assert len(again.trials) == len(run.trials)
    assert bs.status(run.results.location).left == 0
    objects = [run, run.results, run.summary, again, run.results.location, run.results.source]
    kept.said += [f"{each} {each!r}" for each in [*objects, *notes, Note(text=f"see {URI}")]]
    kept.said += [run.root, again.root, str(run.summary and run.summary.path), caplog.text]
    bs.sweep("mine.yaml", results=run.results.location, address="none", observer=ignore)
    kept.clean()
