"""The bendable knee: a smooth line through a curve, for figures, laws and crossovers.

    S(B) = S_min (1 + (B_crit / B)^(a k))^(1 / k)

k bends the knee, a is minus the log-log slope at small batches. With a = k = 1 it is the curve of
McCandlish et al. 2018 (arXiv:1812.06162), for which (S/S_min - 1)(E/E_min - 1) = 1. It assumes a
form, which the regimes and their intervals do not (``analysis.fit.convex``).

Everything is in natural logarithms: a parameter vector is ``(log S_min, log B_crit, log k, a)``
along the last axis, so that noise in log steps is additive. ``fit`` is Levenberg-Marquardt
(Marquardt 1963, doi:10.1137/0111030) on independent rows, many curves at once: a bootstrap is
hundreds of fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.fit.convex import EXACT, Array, Points

STEPS, BATCH, BEND, SLOPE = range(4)
"""Places in a parameter vector: log S_min, log B_crit, log k, a."""

BENDS = (0.4, 8.0)
SLOPES = (0.5, 2.0)
BENT_FROM = 5
"""Batch sizes from which k is free; a can be from one more."""
SURE = 0.9
"""Level of the F test by which a differs from 1."""

REACH = np.log(1e6)
"""Distance by which B_crit may lie beyond the tested batch sizes: enough for pure lines to fit."""
_STARTS_BEND = np.log([0.45, 1.0, 2.8])
_STARTS_BATCH = np.array([-0.3, 0.0, 0.3, 0.6, 0.9, 1.3])
"""As shares of the tested range."""
_MOST = 6
"""Starts of a curve that are followed: the best of them all."""
_ITERATIONS = 60

SEED = 2026


def theta(min_steps: float, critical: float, bend: float = 1.0, slope: float = 1.0) -> Array:
    """The parameter vector of a curve given in plain units (steps, examples a batch)."""
    return np.array([np.log(min_steps), np.log(critical), np.log(bend), slope])


def log_steps(x: Array, params: Array) -> Array:
    """log S at log batch sizes ``x`` (..., n) for ``params`` (..., 4); shape (..., n)."""
    k = np.exp(params[..., BEND, None])
    z = params[..., SLOPE, None] * k * (params[..., BATCH, None] - x)
    return np.asarray(params[..., STEPS, None] + np.logaddexp(0.0, z) / k)


def jacobian(x: Array, params: Array) -> tuple[Array, Array]:
    """``log_steps`` and its derivatives by the four parameters: (..., n) and (..., n, 4)."""
    k = np.exp(params[..., BEND, None])
    a = params[..., SLOPE, None]
    away = params[..., BATCH, None] - x
    z = a * k * away
    bend = np.logaddexp(0.0, z) / k
    share = sigmoid(z)
    slopes = np.empty((*z.shape, 4))
    slopes[..., STEPS] = 1.0
    slopes[..., BATCH] = a * share
    slopes[..., BEND] = a * away * share - bend
    slopes[..., SLOPE] = away * share
    return params[..., STEPS, None] + bend, slopes


def sigmoid(z: Any) -> Any:
    """1 / (1 + e^-z), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The knee of one curve."""

    params: Array
    """(4,)"""
    x: Array
    """Log batch sizes that it is fitted to, (n,)."""
    weights: Array
    sse: float
    bent: bool
    """Whether k is free; else it is 1, as a is where it is not ``sloped``."""
    sloped: bool
    straight: bool = False
    """Whether k is free and cannot be told from 1."""

    @classmethod
    def of(cls, points: Points, *, steep: bool = False, level: float = SURE) -> Knee:
        """Fit three batch sizes at least. a is free where that fits better by an F test of this
        ``level``, or where ``steep`` says that there is a small-batch penalty."""
        fixed = cls._fitted(points, bent=False, sloped=False)
        if len(points.x) < BENT_FROM:
            return fixed
        bent = cls._fitted(points, bent=True, sloped=False)
        if len(points.x) > BENT_FROM:
            sloped = cls._fitted(points, bent=True, sloped=True)
            if steep or bent._excluded_by(sloped, level):
                return sloped
        return replace(bent, straight=not fixed._excluded_by(bent, SURE))

    def _excluded_by(self, wider: Knee, level: float) -> bool:
        """Whether a knee of one parameter more fits better, by an F test."""
        from scipy.special import fdtri  # a third of a second to import: not at start

        least = max(wider.sse / wider.spare, EXACT**2)
        return bool((self.sse - wider.sse) / least > fdtri(1.0, wider.spare, level))

    @classmethod
    def _fitted(cls, points: Points, *, bent: bool, sloped: bool) -> Knee:
        weights = points.weights
        params, sse = fit(points.x[None], points.y[None], weights, bent=bent, sloped=sloped)
        return cls(
            params=params[0], x=points.x, weights=weights, sse=float(sse[0]), bent=bent,
            sloped=sloped,
        )  # fmt: skip

    @property
    def spare(self) -> int:
        """Degrees of freedom, 1 at least."""
        return max(len(self.x) - 2 - self.bent - self.sloped, 1)

    @property
    def noise(self) -> float:
        """Standard deviation of log steps about it, of a point of weight 1."""
        return float(np.sqrt(self.sse / self.spare))

    @property
    def form(self) -> str:
        """Its name."""
        if self.sloped:
            return "knee with a slope of its own"
        if not self.bent:
            return "knee of fixed bend"
        return "McCandlish's knee" if self.straight else "bent knee"

    def log_steps(self, x: Array) -> Array:
        """At log batch sizes (n,); (n,)."""
        return log_steps(x, self.params)

    def asymptotes(self) -> dict[str, float]:
        """S_min, B_crit and S_min B_crit (of a = 1) by the names of the quantities they are."""
        steps, critical = (float(np.exp(self.params[place])) for place in (STEPS, BATCH))
        return {
            "min_steps": steps,
            "critical_batch_size": critical,
            "min_examples": steps * critical,
        }

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``best``."""
        return {
            "form": self.form,
            "k": float(np.exp(self.params[BEND])),
            "a": float(self.params[SLOPE]),
            "min_steps": float(np.exp(self.params[STEPS])),
            "critical_batch_size": float(np.exp(self.params[BATCH])),
            "noise": self.noise,
            "points": len(self.x),
        }

    def replicates(self, count: int, seed: int) -> Array:
        """Parameters (count, 4) of fits to normal noise about it, of a variance that is drawn for
        each from its own distribution: a parametric bootstrap."""
        rng = np.random.default_rng([SEED, seed])
        x = np.tile(self.x, (count, 1))
        deviation = self.noise * np.sqrt(self.spare / rng.chisquare(self.spare, (count, 1)))
        scatter = deviation / np.sqrt(np.maximum(self.weights, 1e-12))
        y = self.log_steps(self.x) + scatter * rng.normal(size=x.shape)
        near = np.tile(self.params, (count, 1, 1))
        return fit(x, y, self.weights, bent=self.bent, sloped=self.sloped, near=near)[0]


def fit(
    x: Array,
    y: Array,
    weights: Array | float = 1.0,
    *,
    bent: bool = True,
    sloped: bool = False,
    near: Array | None = None,
) -> tuple[Array, Array]:
    """The best knee of each row of log batch sizes ``x`` and log steps ``y`` (R, n).

    Args:
        weights: of the squares, (n,).
        bent, sloped: whether k and a are free; else they are 1.
        near: parameters (R, s, 4) to start from, instead of a scan.

    Returns:
        Parameters (R, 4) and the weighted sum of squares (R,).
    """
    root = np.sqrt(np.broadcast_to(weights, x.shape[-1:]))
    starts = _scan(x, y, root, bent=bent) if near is None else near
    rows, count = len(x), starts.shape[1]
    each = np.repeat(np.arange(rows), count)
    params, sse = _solve(x[each], y[each], root, starts.reshape(-1, 4), bent, sloped)
    best = np.arange(rows) * count + sse.reshape(rows, count).argmin(1)
    return params[best], sse[best]


def _scan(x: Array, y: Array, root: Array, *, bent: bool) -> Array:
    """Starts of each row, (R, s, 4): the best of a grid of bends and batch sizes."""
    bends = _STARTS_BEND if bent else np.zeros(1)
    first, last = x.min(1), x.max(1)
    grid = np.zeros((len(x), len(bends), len(_STARTS_BATCH), 4))
    grid[..., SLOPE] = 1.0
    grid[..., BEND] = bends[:, None]
    grid[..., BATCH] = first[:, None, None] + _STARTS_BATCH * (last - first)[:, None, None]
    starts: Array = grid.reshape(len(x), -1, 4)
    off = y[:, None] - log_steps(x[:, None], starts)
    level = (off * root**2).sum(-1) / (root**2).sum()
    starts[..., STEPS] = level
    sums = np.square((off - level[..., None]) * root).sum(-1)
    order = np.argsort(sums, axis=1)[:, :_MOST, None]
    return np.take_along_axis(starts, order, axis=1)


def _solve(
    x: Array, y: Array, root: Array, start: Array, bent: bool, sloped: bool
) -> tuple[Array, Array]:
    free = np.array([True, True, bent, sloped])
    low, high = np.full((len(x), 4), -np.inf), np.full((len(x), 4), np.inf)
    low[:, BATCH], high[:, BATCH] = x.min(1) - REACH, x.max(1) + REACH
    low[:, BEND], high[:, BEND] = np.log(BENDS)
    low[:, SLOPE], high[:, SLOPE] = SLOPES
    now = np.clip(start, low, high)
    sums = np.square((y - log_steps(x, now)) * root).sum(1)
    damping, resting = np.full(len(x), 1e-3), np.zeros(len(x), dtype=bool)
    for _ in range(_ITERATIONS):
        fitted, slopes = jacobian(x, now)
        slopes = slopes * root[:, None]
        across = slopes.transpose(0, 2, 1)
        downhill = (across @ ((y - fitted) * root)[..., None])[..., 0]
        moving = free & ~(((now <= low) & (downhill < 0)) | ((now >= high) & (downhill > 0)))
        normal = (across @ slopes) * (moving[:, :, None] & moving[:, None, :])
        scale = np.einsum("rpp->rp", normal)
        scale[:] += np.where(moving, damping[:, None] * scale + 1e-12, 1.0)
        step = np.linalg.solve(normal, np.where(moving, downhill, 0.0)[..., None])[..., 0]
        trial = np.clip(now + np.clip(step, -3.0, 3.0), low, high)
        new = np.square((y - log_steps(x, trial)) * root).sum(1)
        better = (new < sums) & ~resting
        resting |= (better & (sums - new <= 1e-7 * sums + 1e-18)) | (damping >= 1e4)
        now, sums = np.where(better[:, None], trial, now), np.where(better, new, sums)
        damping = np.clip(np.where(better, damping / 9, damping * 7), 1e-9, 1e9)
        if resting.all():
            break
    return now, sums
