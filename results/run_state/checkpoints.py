"""Snapshots of packs that are being trained, and paused trials.

Bytes in, the same bytes out, replaced atomically. Files with other names than ours are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from results.storage.location import Location
from results.storage.names import experiment_name, is_plain
from results.storage.whole_file import TEMPORARY

FOLDER = "checkpoints"
_SUFFIX = ".snapshot"
_PAUSED = ".trial"
_BETWEEN = ","


class Checkpoints:
    """The snapshots of a results folder, one a pack."""

    def __init__(self, root: str | Path | Location) -> None:
        self.location = Location.of(root)

    def save(self, pack: str, data: bytes) -> None:
        """Keep ``data`` in place of the pack's last snapshot; a kill leaves one of the two.

        Raises:
            ResultsError: the disk cannot be written; the last snapshot is as it was.
        """
        self.location.write(_name(pack), data)

    def load(self, pack: str) -> bytes | None:
        """The pack's snapshot, ``None`` if it has none."""
        return self.location.read(_name(pack))

    def list(self) -> list[str]:
        """The packs that have a snapshot."""
        return [name for name in self._names(_SUFFIX) if is_plain(name)]

    def delete(self, pack: str) -> None:
        """Delete the pack's snapshot, if there is one."""
        self.location.delete(_name(pack))

    def unfinished(self, before: float) -> dict[str, bytes]:
        """The contents of temporary files of snapshots, as a killed process leaves them, by name.

        Args:
            before: seconds since the epoch; a file that was written later is left out.
        """
        names = self._begun(_SUFFIX, before)
        begun = {name: self.location.read(f"{FOLDER}/{name}") for name in names}
        return {name: data for name, data in begun.items() if data is not None}

    def drop_unfinished(self, name: str) -> None:
        """Delete one of the files of ``unfinished``."""
        self.location.delete(f"{FOLDER}/{name}")

    def keep_paused(self, study: str, states: Mapping[str, bytes]) -> None:
        """Keep what paused trials of a study need to go on in a later round, by id."""
        for trial, data in states.items():
            self.location.write(_paused(study, trial), data)

    def paused(self, study: str, trials: Iterable[str]) -> dict[str, bytes]:
        """The states of those of a study's trials that are paused, by id."""
        states = {trial: self.location.read(_paused(study, trial)) for trial in trials}
        return {trial: data for trial, data in states.items() if data is not None}

    def drop(self, study: str, trials: Iterable[str]) -> None:
        """Delete the states of those trials of a study."""
        for trial in trials:
            self.location.delete(_paused(study, trial))

    def drop_all(self, studies: Iterable[str], before: float) -> None:
        """Delete the states of all paused trials of those studies, and temporary files of such that
        were written ``before`` that time, in seconds since the epoch."""
        chosen = set(studies)
        for name in self._names(_PAUSED):
            study, _, trial = name.partition(_BETWEEN)
            if study in chosen and is_plain(trial):
                self.location.delete(_paused(study, trial))
        for name in self._begun(_PAUSED, before):
            if name[1:].partition(_BETWEEN)[0] in chosen:
                self.drop_unfinished(name)

    def _names(self, suffix: str) -> Iterator[str]:
        """The parts before ``suffix`` in the names of the folder's files."""
        for file in self.location.files(FOLDER, suffix):
            yield file.name[len(FOLDER) + 1 : -len(suffix)]

    def _begun(self, suffix: str, before: float) -> Iterator[str]:
        """The temporary files of files whose names end in ``suffix``, if written ``before``."""
        for file in self.location.files(FOLDER, TEMPORARY, hidden=True):
            name = file.name[len(FOLDER) + 1 :]
            parts = name.removeprefix(".").split(_BETWEEN)
            ours = name.startswith(".") and f"{suffix}." in name and all(map(is_plain, parts))
            if ours and file.modified and file.modified < before:
                yield name


def _paused(study: str, trial: str) -> str:
    return f"{FOLDER}/{experiment_name(study)}{_BETWEEN}{experiment_name(trial)}{_PAUSED}"


def _name(pack: str) -> str:
    return f"{FOLDER}/{experiment_name(pack)}{_SUFFIX}"
