"""What Ray Tune calls: for the next pack, whether to end, and with what it knows of its trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher

from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Failure, Over

_FORGET_STEPS, _FORGET_FROM = 50, 200


class PackSearcher(Searcher):
    """Suggests packs to Ray Tune, as few at a time as can be placed, so that each has the latest
    results. Tune's own state is not used: the dispatcher decides from the dataset.

    Args:
        send: puts an assignment into the mailbox of its worker.
        drain: takes in all messages of the workers.
        slots: how many packs can be out.
        limit: after so many it ends, since Tune's bookkeeping grows with their number.
        explain: why a worker ended without a message, by the ids of its Tune trial and its pack.
        over: whether the Tuner has to end. Tune asks for the next pack, and nothing else, for up to
            ten minutes while no worker of its own is alive.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        send: Callable[[Assignment], None],
        drain: Callable[[], None],
        slots: Callable[[], int],
        limit: int,
        explain: Callable[[str, str], Failure],
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(metric="trials", mode="max")
        self._dispatcher = dispatcher
        self._send, self._drain, self._slots = send, drain, slots
        self._left = limit
        self._explain, self._over = explain, over
        self._out: dict[str, str] = {}

    @property
    def out(self) -> Mapping[str, str]:
        """The packs that are out, by their Tune trials."""
        return dict(self._out)

    def suggest(self, trial_id: str) -> Any:
        if self._left <= 0 or self._over():
            return str(Searcher.FINISHED)
        if len(self._out) >= self._slots():
            return None
        answer = self._dispatcher.next()
        if answer is None:
            return str(Searcher.FINISHED)
        if answer == "wait":
            return None
        self._send(answer)
        self._left -= 1
        self._out[trial_id] = answer.pack.id
        return {"pack": answer.pack.id}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        del result, error
        pack = self._out.pop(trial_id, None)
        if pack is None:
            return
        self._drain()
        if pack in self._dispatcher.out:  # its worker ended without a message
            failure = self._explain(trial_id, pack)
            self._dispatcher.receive(Over(pack=pack, end="failed", failure=failure))

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune saves its searcher, but it is never read."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a new run asks the dataset."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: see ``save``."""


class NotWaiting(tune.Stopper):
    """Ends a Tuner all of whose workers only begin: of packs in training it waits for the end."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        del trial_id, result
        return False

    def stop_all(self) -> bool:
        return self._over()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune saves it, but it is never read."""
        return {}


class TrialStates(TrialProgressCallback):
    """Replaces the one that prints, since the display is ours; it has Tune's trials."""

    _trials: Sequence[Any] = ()

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Before Tune takes in what has happened.

        ``trials`` is Tune's own list. It goes through all of it again and again, so those that are
        over leave it from time to time: nothing of theirs is asked for any more.
        """
        self._trials = trials
        if iteration % _FORGET_STEPS == 0 and len(trials) > _FORGET_FROM:
            trials[:] = [each for each in trials if not each.is_finished()] or trials[-1:]

    def running(self) -> set[str]:
        """Trials that have been placed, and whose workers live."""
        return {each.trial_id for each in tuple(self._trials) if each.status == "RUNNING"}

    def error_of(self, trial: str) -> str:
        """The text that Tune has kept of a trial's last error."""
        for each in self._trials:
            if each.trial_id == trial and each.error_file and Path(each.error_file).exists():
                text = Path(each.error_file).read_text(encoding="utf-8", errors="replace")
                return text.rpartition("Failure # ")[2].partition("\n")[2]
        return ""

    def log_result(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """Nothing."""
