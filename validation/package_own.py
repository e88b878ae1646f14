"""``python -m validation.package_own RESULTS_FOLDER ... [--to FOLDER]``: package what was
swept.

It packages the finished studies of every experiment in the folders and their trials that count,
with ``source`` set, and replaces an experiment that is packaged already. Columns about the machine
and its speed are left out. Measurements are packaged for studies that have several targets or train
past theirs (``stop_at_target: false``), so that these, others and budgets can be computed; for
other studies they would be a hundred times the rest, and are left out but of the trials whose
noise scale is read (``analysis.noise.scales``). The same folders make the same bytes.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.curves.runs import last_exact
from analysis.noise.scales import BEST, NEAR
from results.counts import count
from results.errors import ResultsError
from results.reader import Results, open
from results.schema import SCHEMAS, json_text, table
from results.searches import current
from results.storage.dataset import encode
from results.storage.location import PACKAGED, Location
from results.storage.names import experiment_name
from results.storage.rows import KEYS, latest

SOURCE = "batchscale"
"""``source`` of every row: it distinguishes these rows from a sweep of the reader."""

LEFT_OUT = (
    *("commit", "device", "error", "layout", "pack", "pack_models"),
    *("train_seconds", "evaluation_seconds", "other_seconds", "revision"),
)
"""Columns that describe the machine or one run on it, or compare the rows of one folder."""

MOST_DRAWN = 4
"""So many times the trials that it wants a study draws at most, where some diverge."""
_GROWS = ("trials_wanted", "keep", "estimator")
"""Columns of a study that a later run may change."""

_MEASURED = "Steps to target of every trial, and its measurements."
_PARTLY = (
    "Steps to target of every trial, and the measurements of those that came to it first, with "
    "their noise scale."
)
_UNMEASURED = (
    "Steps to target of every trial; measurements are not packaged, so that another target cannot "
    "be asked of it."
)

_PATH = re.compile(r"(?:^|[\s'\"=:(\[])(?:/(?!/)[^\s/'\"]+/|~/|[A-Za-z]:\\)")
"""A path of a file system: an absolute one, or one of a home folder."""


def tables(folders: Sequence[str | Path]) -> dict[str, dict[str, pa.Table]]:
    """Experiment to its tables by name.

    Raises:
        ResultsError: a folder that does not exist or holds no trial, an experiment that two folders
            have, or a cell that names this machine, its user or a path.
    """
    made: dict[str, dict[str, pa.Table]] = {}
    for folder in folders:
        opened = open(folder)
        names = pc.unique(opened.trial_rows["experiment"]).to_pylist()
        if not names:
            raise ResultsError(f"{folder} holds no trials", hint="name the folder of a sweep")
        for name in sorted(names):
            if name in made:
                raise ResultsError(
                    f"two folders have the experiment {name}", hint="name one of them"
                )
            made[experiment_name(name)] = _tables(opened, name)
    return made


def make(folders: Sequence[str | Path], folder: Path) -> int:
    """Write the experiments of ``folders`` under ``folder``; the number of their trials.

    Raises:
        ResultsError: as ``tables``, a folder that cannot be written, or trials that an experiment
            packaged before has too.
    """
    made = tables(folders)
    location = Location(folder)
    location.require(writing=True)
    _each_trial_once(made, folder)
    for experiment, by_name in made.items():
        for name in SCHEMAS:
            for file in location.files(f"{name}/{experiment}", ".parquet"):
                location.delete(file.name)
        for name, rows in by_name.items():
            location.write(f"{name}/{experiment}/{experiment}.parquet", encode(rows))
    return sum(by_name["trials"].num_rows for by_name in made.values())


def _each_trial_once(made: dict[str, dict[str, pa.Table]], folder: Path) -> None:
    """A dataset counts a trial once: of two experiments with it, one would lose it unseen."""
    owners: dict[str, str] = {}
    for file in sorted(folder.glob("trials/*/*.parquet")):
        if file.parent.name not in made:
            names = pq.read_table(file, columns=["trial"])["trial"].to_pylist()
            owners |= dict.fromkeys(names, file.parent.name)
    for experiment, by_name in made.items():
        names = by_name["trials"]["trial"].to_pylist()
        shared = [owners[name] for name in names if name in owners]
        if shared:
            raise ResultsError(
                f"{experiment} has {count(len(shared), 'trial')} of {shared[0]}, and a dataset "
                "counts a trial once",
                hint="give one of the two experiments another seed",
            )
        owners |= dict.fromkeys(names, experiment)


def _tables(opened: Results, experiment: str) -> dict[str, pa.Table]:
    def of_experiment(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.equal(rows["experiment"], experiment))

    # Studies in the experiment's order, which is that of curves; trials by study, as drawn.
    every = opened.source.table("studies").replace_schema_metadata(None)
    studies, trials = (
        of_experiment(rows) for rows in (latest(every, KEYS["studies"]), opened.trial_rows)
    )
    # Studies and searches that the file does not have any more would need its older forms.
    studies = studies.filter(pa.array(current(studies.to_pandas())))
    present = pc.is_in(trials["search_id"], studies["search_id"].combine_chunks())
    trials = trials.filter(pc.or_(present, pc.is_null(trials["search_id"])))
    studies = studies.filter(pc.is_in(studies["study"], _finished(studies, trials)))
    trials = trials.filter(pc.is_in(trials["study"], studies["study"].combine_chunks()))
    if not trials.num_rows:
        raise ResultsError(
            f"no study of {experiment} in {opened.root} is finished",
            hint="give the sweep's command again: it does what is missing",
        )
    place = pc.index_in(trials["study"], studies["study"].combine_chunks())
    for name in _GROWS:  # a search that has grown has trials that were recorded before
        at = trials.column_names.index(name)
        trials = trials.set_column(at, name, studies[name].take(place))
    keys = ("place", "role", "search_seed", "enlargement", "index", "trial")
    trials = trials.append_column("place", place).sort_by([(key, "ascending") for key in keys])
    kept = {"studies": _plain("studies", studies), "trials": _plain("trials", trials)}
    measured = _measurements(opened, trials, studies)
    if measured is not None:
        kept["measurements"] = measured
    for name, rows in kept.items():
        _no_place(name, rows)
    partly = _PARTLY if len(_with_noise(trials)) else _MEASURED
    notes = _UNMEASURED if measured is None else partly
    return {**kept, "sources": _source(experiment, kept["trials"], notes)}


def _measurements(opened: Results, trials: pa.Table, studies: pa.Table) -> pa.Table | None:
    """Of the trials that were trained past a target, or whose noise scale is read, by trial and
    step; None if there is none."""
    several = [r["study"] for r in studies.to_pylist() if len(json.loads(r["targets"] or "[]")) > 1]
    past = pc.is_in(trials["study"], pa.array(several, pa.string()))
    beyond = pc.or_(past, pc.invert(trials["stop_at_target"]))
    beyond = trials.filter(pc.or_(beyond, pc.is_in(trials["trial"], _with_noise(trials))))
    if not beyond.num_rows:
        return None
    part = opened.with_trials(beyond.select(opened.trial_rows.column_names))
    frame = part.read_measurements(SCHEMAS["measurements"].names)
    rows = pa.Table.from_pandas(frame, schema=SCHEMAS["measurements"], preserve_index=False)
    place = pc.index_in(rows["trial"], beyond["trial"].combine_chunks())
    rows = rows.append_column("place", place)
    return _plain("measurements", rows.sort_by([("place", "ascending"), ("step", "ascending")]))


def _with_noise(trials: pa.Table) -> pa.Array:
    """The trials of each study that recorded their noise scale and came to the target first."""
    rows = trials.select(["study", "trial", "technique", "steps_to_target"]).to_pandas()
    rows = rows[rows["technique"].str.contains('"noise_scale"', na=False)]
    rows = rows.dropna(subset="steps_to_target").sort_values(["steps_to_target", "trial"])
    fewest = rows.groupby("study")["steps_to_target"].transform("min")
    near = rows[rows["steps_to_target"] <= NEAR * fewest]
    return pa.array(near.groupby("study").head(BEST)["trial"], pa.string())


def _finished(studies: pa.Table, trials: pa.Table) -> pa.Array:
    """The studies that have as many feasible trials of their search as they want, or have drawn
    all that they may: an unfinished one would cut every batch size of its curve to the few that it
    has."""
    columns = ["study", "role", "status", "stop_reason", "steps_to_target", "steps_run"]
    rows = trials.select(columns).to_pandas()
    rows = rows[rows["role"].isin(("search", "extension"))]
    rows = rows.assign(lost=rows["status"].eq("INFEASIBLE"))
    ended = rows["lost"] | rows["status"].eq("COMPLETE") | rows["stop_reason"].eq("dominated")
    drawn = dict(iter(rows[ended].groupby("study")))
    done = []
    for row in studies.to_pylist():
        wanted, own = row["trials_wanted"] or 1, drawn.get(row["study"], rows[:0])
        # One that diverged later would have been dominated first, and counts as the sweep counts.
        limit = last_exact(own["steps_to_target"], row["keep"] if row["stop_at_target"] else None)
        lost = own["lost"] & (own["steps_run"] <= limit)
        if (~lost).sum() >= wanted or len(own) >= MOST_DRAWN * wanted:
            done.append(row["study"])
    return pa.array(done, pa.string())


def _plain(name: str, rows: pa.Table) -> pa.Table:
    """The rows with their source, and without columns that describe the machine."""
    fixed = {"source": SOURCE, "run": SOURCE}
    columns = []
    for field in SCHEMAS[name]:
        if field.name in LEFT_OUT:
            columns.append(pa.nulls(len(rows), field.type))
        elif field.name in fixed:
            columns.append(pa.array([fixed[field.name]] * len(rows), field.type))
        else:
            columns.append(rows[field.name])
    return pa.table(columns, schema=SCHEMAS[name])


def _source(experiment: str, trials: pa.Table, notes: str) -> pa.Table:
    versions = sorted({text for text in trials["versions"].to_pylist() if text})
    last = max(trials["time"].to_pylist())
    row = {
        "experiment": experiment,
        "source": SOURCE,
        "citation": f"The batchscale developers: batchscale, experiment {experiment}",
        "licence": "Apache-2.0",
        "address": None,
        "checksum": f"sha256:{_digest(trials)}",
        "notes": f"{notes} Versions: {'; '.join(versions) or 'not recorded'}",
        "time": last,
    }
    return table("sources", [row])


def _digest(trials: pa.Table) -> str:
    """Of the answers: each trial with its steps to target."""
    pairs = trials.select(["trial", "status", "steps_to_target", "last_miss"]).to_pylist()
    return hashlib.sha256(json_text(pairs).encode()).hexdigest()


def _no_place(name: str, rows: pa.Table) -> None:
    local_names = {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}
    for column, cell in _texts(rows):
        if _PATH.search(cell) or any(
            re.search(rf"\b{re.escape(local)}\b", cell) for local in local_names if len(local) > 3
        ):
            raise ResultsError(
                f"column {column} of {name} names this machine, its user or a path: {cell[:80]!r}",
                hint="sweep a packaged workload, or one whose file is named without its folder",
            )


def _texts(rows: pa.Table) -> Iterator[tuple[str, str]]:
    for field in rows.schema:
        if pa.types.is_string(field.type):
            cells = pc.unique(rows[field.name]).drop_null().to_pylist()
            yield from ((field.name, text) for text in cells)


def main(arguments: Sequence[str]) -> str:
    """Run the command; its output.

    Raises:
        ResultsError: as ``make``, or no folder.
    """
    given, to = [*arguments], PACKAGED["own"]
    if "--to" in given[:-1]:
        at = given.index("--to")
        to = Path(given[at + 1])
        del given[at : at + 2]
    if not given or any(text.startswith("--") for text in given):
        raise ResultsError(
            "no results folder is named" if not given else f"no option {given[-1]}",
            hint="usage: python -m validation.package_own FOLDER ... [--to FOLDER]",
        )
    return count(make(given, to), "trial")


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except ResultsError as error:
        sys.exit(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
