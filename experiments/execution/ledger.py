"""Writes a worker's claims, rows and snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from experiments.programs.place import folder_of_trials
from results.errors import DatasetLostError
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claim, Claims
from results.storage.location import Location
from results.store import Store

if TYPE_CHECKING:
    from experiments.parallel.ranks import Ranks
    from experiments.scheduling.messages import Assignment

Rows = Sequence[Mapping[str, Any]]


class Ledger(Checkpoints):
    """The results folder (or URI), as a worker uses it. Packs are named by their ids, so that it
    can be called from another machine.

    ``processes`` are what else runs for its packs (``results.run_state.processes.identify``).
    """

    def __init__(self, root: str | Location, processes: Sequence[Mapping[str, Any]] = ()) -> None:
        self.store = Store(root)
        super().__init__(self.store.location)
        self.claims = Claims(self.store.location)
        self.processes = processes
        self._claim_of: dict[str, Claim] = {}
        self.place: Mapping[str, str] = {}
        """Where its packs train, for their claims: the node of a cluster."""

    @property
    def programs(self) -> str:
        """The folder of the trials of programs."""
        return folder_of_trials(self.location, reached=True)

    def take(
        self,
        pack: str,
        trials: Sequence[str],
        info: Mapping[str, Any],
        before: Mapping[str, str],
        holder: Mapping[str, Any] | None = None,
    ) -> bool:
        """Claim a pack's trials; whether they were free, and nobody has recorded them since.

        ``before`` are the commits that are known to have recorded some of them. ``holder`` is the
        process that trains them, where that is another one.
        """
        if pack in self._claim_of:  # its worker has died, and its driver has released it
            self.release(pack)
        info = {**info, **self.place}
        claim = self.claims.take(pack, trials, processes=self.processes, info=info, holder=holder)
        if claim is None:
            return False
        if self._recorded(trials, before):
            claim.release()
            return False
        self._claim_of[pack] = claim
        return True

    def extend(self, pack: str, trials: Sequence[str], before: Mapping[str, str]) -> bool:
        """Claim further trials for a claimed pack, all or none; as ``take``."""
        claim = self._claim_of[pack]
        if not claim.extend(trials):
            return False
        if self._recorded(trials, before):
            claim.reduce(trials)
            return False
        return True

    def _recorded(self, trials: Sequence[str], before: Mapping[str, str]) -> bool:
        """Whether another driver recorded some between the driver's reading and our claim."""
        rows = self.store.trials(columns=["trial", "run"])
        rows = rows[rows["trial"].isin(set(trials))]
        return any(before.get(t) != run for t, run in zip(rows["trial"], rows["run"], strict=True))

    def renew(self, pack: str, progress: Mapping[str, tuple[int, float | None]]) -> bool:
        """Keep the claim alive; whether it is still ours.

        Raises:
            DatasetLostError: the dataset is not there any more.
        """
        held = self._claim_of[pack].renew(progress, force=True)
        if not held:
            self.location.check()
        return held

    def release(self, pack: str) -> None:
        """Give up the claim."""
        with suppress(DatasetLostError):  # and the claim with it
            self._claim_of.pop(pack).release()

    def abandon(self, pack: str) -> None:
        """Release the claim of another worker of this sweep, which has died with it."""
        if pack in self._claim_of:
            self.release(pack)
        else:
            self.claims.abandon(pack, self.processes)

    def commit(self, pack: str, experiment: str, measurements: Rows, trials: Rows) -> str | None:
        """Write finished trials; their ``run``, or ``None`` if the claim is lost.

        Raises:
            DatasetLostError: as ``Store.commit_columns``, which keeps the rows elsewhere.
        """
        if not self._claim_of[pack].held():
            try:
                self.location.check()
            except DatasetLostError:
                return self.store.commit(experiment, measurements=measurements, trials=trials)
            return None
        return self.store.commit(experiment, measurements=measurements, trials=trials)


def claimed(assignment: Assignment, ledger: Ledger, group: Ranks, info: Mapping[str, Any]) -> bool:
    """Whether rank 0 of a group has claimed the assigned pack, said on every rank. It keeps no
    claim of which the others do not hear."""
    pack, wanted = assignment.pack.id, sorted(assignment.wanted)
    taken = group.rank == 0 and ledger.take(pack, wanted, info, assignment.before)
    try:
        return bool(group.agree(taken))
    except BaseException:
        if taken:
            ledger.release(pack)
        raise
