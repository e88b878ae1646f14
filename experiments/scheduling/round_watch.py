"""How far all studies are, by rounds: when one ends, and whether the next fits the time left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.scheduling import rounds
from experiments.scheduling.events import Observer, RoundFinished
from experiments.scheduling.study_state import StudyState


class RoundWatch:
    """Reports each round that ends to the observer, and estimates the next one.

    Args:
        on_round: called with each round that ends; a failure that it returns stops the sweep.
        slots: packs that can be trained at once.
        left: seconds of the time allowed that are left; ``None``: there is no limit.
    """

    def __init__(
        self,
        states: Sequence[StudyState],
        *,
        slots: int,
        observer: Observer,
        on_round: Callable[[int], Exception | None],
        left: Callable[[], float | None],
    ) -> None:
        self._states, self._slots = states, slots
        self._observer, self._on_round, self._left = observer, on_round, left
        self._seconds: dict[int, float] = {}
        self._trials: dict[int, int] = {}
        self.refused: int | None = None
        """The round that did not fit the time left; nothing of it or of a later one is begun."""
        self._allowed: set[int] = set()
        self.round = self.done()

    def done(self) -> int:
        """Rounds of the search that every study has behind it."""
        open_ = [wave.round for s in self._states if (wave := s.wave()) is not None]
        most = max((len(rounds.goals(s.study.trials)) for s in self._states), default=0)
        return min([most, *open_])

    def ended(self) -> Exception | None:
        """Report the rounds that have ended since the last call; what stops the sweep, if any."""
        done = self.done()
        while self.round < done:
            number, self.round = self.round, self.round + 1
            self._observer(
                RoundFinished(
                    round=number,
                    trials=rounds.goals(max(s.study.trials for s in self._states))[number],
                    reached=sum(1 for state in self._states if state.hits()),
                    studies=len(self._states),
                )
            )
            error = self._on_round(number)
            if error is not None:
                return error
        return None

    def spent(self, number: int, seconds: float, trials: int) -> None:
        """Note how long a pack of round ``number`` took."""
        self._seconds[number] = self._seconds.get(number, 0.0) + seconds
        self._trials[number] = self._trials.get(number, 0) + trials

    def fits(self, number: int) -> bool:
        """Whether a pack of round ``number`` may start: a round is begun if all of it fits.

        A trial is expected to take what it took in the round before; usually it takes less, since
        more trials dominate it. The first round of all is begun in any case.
        """
        if self.refused is not None:
            return number < self.refused
        if number in self._allowed or not self._trials:
            self._allowed.add(number)
            return True
        left, expected = self._left(), self.expected(number)
        if left is not None and expected > left:
            self.refused = number
            return False
        self._allowed.add(number)
        return True

    def expected(self, number: int) -> float:
        """Seconds that the open trials of round ``number`` will take, over all slots; from the
        latest round of which something has ended."""
        last = max((n for n in self._trials if n < number), default=max(self._trials, default=0))
        trials = self._trials.get(last, 0)
        if not trials:
            return 0.0
        waves = [wave for s in self._states if (wave := s.wave()) is not None]
        open_ = sum(len(wave.trials) for wave in waves)
        return self._seconds[last] / trials * open_ / self._slots
