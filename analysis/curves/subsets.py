"""The least of n of N trials, over all C(N, n) subsets, from the order statistics alone.

The j-th smallest of N, X(j), is the least of C(N - j, n - 1) of the subsets of n. Where only
X(1) … X(r) are known, the least of C(N - r, n) of them is not: their share is the *censored
weight*. Nothing here is drawn: these are the exact U-statistics (Hoeffding 1948).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def weights(trials: int, n: int, known: int) -> tuple[Array, float]:
    """With what weight X(1) … X(``known``) are the least of ``n`` of ``trials``; the weight that
    is left, the censored one: C(N - j, n - 1) / C(N, n), (known,), and C(N - r, n) / C(N, n).

    Raises:
        ValueError: not 1 <= n <= trials, or more known than there are.
    """
    each, left = _weights(trials, np.array([n]), known)
    return each[0], float(left[0])


def fewest(trials: int, known: int, most: float) -> int | None:
    """The least n whose censored weight is at most ``most``; None where no n has that (nothing
    is known)."""
    return _least(trials, known, most) if known else None


def least_known(trials: int, n: int, most: float) -> int:
    """How many order statistics bring the censored weight of ``n`` down to ``most``."""
    return next(r for r in range(trials + 1) if weights(trials, n, r)[1] <= most)


def expected(steps: Array, trials: int, n: NDArray[np.intp]) -> Array:
    """The expected least of each of ``n`` (m,) trials of ``trials``, in steps, (m,).

    ``steps``: X(1) … X(r), (r,), ascending. It is the mean over those subsets whose least is
    among the r known ones (conditional on that: the sum is divided by one minus the censored
    weight), and so a lower bound of the mean over all; equal to it where r = N.
    """
    each, left = _weights(trials, n, len(steps))
    return np.asarray(each @ steps / (1.0 - left))


def _weights(trials: int, n: NDArray[np.intp], known: int) -> tuple[Array, Array]:
    if not (np.all(n >= 1) and np.all(n <= trials) and 0 <= known <= trials):
        raise ValueError(f"no {n} of N = {trials}, of which {known} are known")
    # The j-th is in the subset with probability n / (N - j + 1) if none before it is.
    before = np.arange(known)
    inside = np.minimum(n[:, None] / (trials - before), 1.0)
    after = np.cumprod(1.0 - inside, axis=1)
    none = np.concatenate([np.ones((len(n), 1)), after], axis=1)
    return none[:, :-1] * inside, none[:, -1]


def _least(trials: int, known: int, most: float) -> int:
    # The censored weight falls with n, to 0 at all of the trials.
    low, high = 1, trials
    while low < high:
        n = (low + high) // 2
        if weights(trials, n, known)[1] <= most * (1 + 1e-12):
            high = n
        else:
            low = n + 1
    return low
