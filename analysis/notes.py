"""Notes: sentences that limit an answer, each with a code and the values in it.

docs/troubleshooting.md has every code, with what it means and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import Formatter
from typing import Any

from analysis.formatting import sizes
from results.counts import VERBS, agreeing, count

TEXTS = {
    # Of trials and their searches
    "earlier_code": "{n:#trial} of an earlier version of the workload's code {n:are} left out",
    "other_searches": "{n:#recorded trial/belong} to other searches of these studies (another "
    "space, method or seed) and not to this sample: --search all counts them",
    "not_run": "not run yet: {at:sizes}",
    "failed": "{text}",
    "recorded": "{text}",
    "rule": "a rule gives the learning rate: each point is the best trial of its own study, which "
    "may not be the point that is best at the base",
    "gradients": "{steps} {n} gradients of the batch: E counts each {unit} drawn once, and the "
    "compute is {n} times that of a gradient a step",
    "wider_bracket": "{n:#trial/have} a wider bracket: evaluations that ended early leave open "
    "whether they had passed this target",
    "undecided": "{n:#trial} may have passed this target at an evaluation that ended early, and "
    "{n:count} as not having reached it",
    # Of points
    "censored": "nothing reached the target at {at:sizes}",
    "runs_mostly_missed": "most runs missed the target at {at:sizes}: no mean is known",
    "runs_missed": "runs missed the target at {at:sizes}: the mean is that of the others, and lies "
    "too low",
    "infeasible": "no trial stayed feasible at {at:sizes}",
    "dominated": "the best is not known at {at:sizes}: these trials were dominated by others",
    "maybe_lower": "the best of these trials may be lower at {at:sizes}: trials among them were "
    "dominated by others that are not",
    "rare": "searches like these would mostly miss the target at {at:sizes}, where few trials "
    "reached it",
    "met_at_start": "the target was met before the first step at {at:sizes}: there is no scaling "
    "of that; take a harder target",
    "edge": "the optimum sits on the edge of its search space, {end}, at {at:sizes}",
    "near_edge": "near-best trials sit on the edge of their search space, {end}, at {at:sizes}",
    "enlarged": "the search space was enlarged at {at:sizes}: {n:#more trial} there, at the same "
    "density",
    "first_trials": "each point is the best of the first {n:#feasible trial}: {at:sizes} {at:have} "
    "no more, others up to {most}",
    "withheld": "point error bars and the budget check are withheld: {why}; the regimes' intervals "
    "rest on the scatter of the batch sizes about the curve, and stand",
    "runs": "every run is a point of its own: {estimator} needs a search",
    "estimators": "the trials name several estimators, {names}: this is the minimum",
    "settings": "each point is the best of the runs over {names}: --by {by} makes a curve of each "
    "value",
    "minimized": "minimized over {names}: {each}",
    "fewer_algorithms": "fewer training algorithms ran at {at:sizes}",
    "searched": "each study was searched {times:#time}, with {n:#feasible trial} each: each point "
    "is {point}",
    "searched_once": "each study was searched once: the median of the searches is its minimum",
    "short_searches": "{n:#search} with too few trials to count at all batch sizes: left out",
    "replicates": "each study was searched {n} times with seeds of its own: points are geometric "
    "means, and single searches scatter by {scatter:.0%} about them",
    "replicate_missed": "not all searches reached the target at {at:sizes}: no mean is known",
    "repeats": "{n} repeated runs are not part of the minima",
    "repeats_of_others": "{n} of the repeated runs are of other configurations than the best",
    "trained_again": "trained again with fresh seeds, the best configuration takes {times:.2f} "
    "times its best trial's steps{spread}{missed}",
    "enough_trials": "{n:#trial} were enough: the best of half as many takes {half:.1%} more "
    "steps{most}",
    "few_trials": "{n:#trial} may be too few: the best of half as many takes {half:.1%} more "
    "steps{most}",
    "trials_unknown": "whether {n:#trial/were} enough is not known: only {known} of the best "
    "{known:are} known, too few to judge half as many",
    "small_n": "each point is the best of only {n:#trial}: it lies above what a longer search "
    "would find, and scatters more",
    "unequal_n": "unequal N: points are the best of {n:#trial}; the best of fewer lies higher, so "
    "compare plateaus with care",
    # Of the fit
    "too_few_sizes": "{sizes}, and the regimes need three",
    "penalty": "a small-batch penalty: batch size {first:,.4g} needs {factor:.2f} times the fewest "
    "{units}, which batch size {best} needs; perfect scaling is measured from there",
    "small_end": "the small end {level}: {rise:.0%} more {units} {after}, slope "
    "{slope}; the fewest {units} are an upper bound",
    "large_end": "the large end {level}: {fall:.0%} fewer steps {after}, slope "
    "{slope}; the least steps are an upper bound",
    "rise": "steps rise again at large batch sizes: batch size {last:,} takes {rise:.2f} times the "
    "fewest; knees and laws are of those up to {until:,}",
    "overlap": "no diminishing-returns region at this tolerance",
    "relative": "points below one step: min_steps is in a unit of the source's, not in steps",
    "mean_of_runs": "a point is the mean of log steps of its runs: nothing is minimized over",
    "grows": "the batch size grows during training: every batch size here is that of the first "
    "step, and examples to target are not B·S, so that perfect_scaling_until and min_examples are "
    "not given",
    "coarse_grid": "with every second evaluation dropped, {quantity} moves to {value:.4g}, out of "
    "its interval",
    "no_step_time": "no step time is known for {devices} devices at batch sizes that were tested",
    "best_at_end": "where the time is a bound, the best batch size is the smallest or the largest "
    "that was tested, or of which the step time is known: one beyond may be better",
    "exact_step_time": "intervals are of the steps alone: the step times have none",
    "other_workload": "these are curves of {workload}, not of {name}: {why}; a curve of its own "
    "may differ by orders of magnitude",
    "fitted_step_time": "step times are a model's, fitted to those measured on one device: "
    "{each:.3g} s an example, {fixed:.3g} s a step; they lie {scatter:.0%} off it",
    "model_and_measured": "on {devices} devices the model takes {low:.2f} to {high:.2f} times what "
    "was measured there",
    "wide_brackets": "at batch size {at:,} the evaluation before the first hit lies {width:.0%} of "
    "its steps earlier: evaluate more often",
    "unequal_brackets": "evaluations around the first hit lie {small:.0%} of its steps apart at "
    "small batch sizes, {large:.0%} at large ones; where they are denser, chance hits come earlier",
    "search_effect": "the search moves the critical batch size by more than its interval: with "
    "unlimited trials it would be {factor} times as large (the best of {n} in {dimensions:#tuned "
    "dimension} takes {small:.2f} times the steps of its limit at batch size {cheapest:,.4g}, "
    "{large:.2f} times at {largest:,.4g})",
    "anchor": "{name} measures from batch size {anchor:g}, which lies outside the tested ones",
    "other_bend": "{name} assumes a knee of bend 1, which these points exclude",
    "knee": "by an assumed form ({form}, k = {k:.2g}): numbers and intervals hold as far as the "
    "form does",
    "knee_slope": "the knee's slope at small batch sizes is -{slope:.2f}, not -1: it has no fewest "
    "examples, and no critical batch size by them",
    "extrapolated": "the {what} are extrapolated: the {end} end is not level, and the knee's "
    "asymptote lies {below:.0%} below it",
    # Of branches
    "branch_one_seed": "one seed has no interval, so that all is open: --seeds 3",
    "branch_diverged": "branches diverged at {at:sizes}: counted as above",
    "branch_base_diverged": "branches at the run's own batch size diverged: nothing is known there",
    "branch_no_slope": "at some windows the loss does not surely fall, so that none is known for "
    "a tolerance in examples, and all is open: longer windows, or more seeds",
    "branch_not_monotone": "{at:sizes} {at:are} within the tolerance beyond one that is above it, "
    "and not counted: the rule of the learning rate may not fit, or it is chance",
    # Of several curves
    "measured_otherwise": "{curve} is not compared with {baseline}: their evaluation grids or "
    "their estimators differ, so that their steps to target are of different quantities",
    "several_baselines": "several curves could be the baseline of {curve}: {labels}",
    "unlike": "not like for like: {curve} and {baseline} differ in {names}",
    "unequal_dimensions": "{n:#metaparameter/were} tuned for {curve} and {of_base} for {baseline}: "
    "the best of N trials costs more in more dimensions, so that the ratio of plateau steps is of "
    "the searches too",
    "unequal_trials": "points are the best of {n} for {curve} and of {of_base} for {baseline}: the "
    "ratio of plateau steps is of the searches too",
    "late": "{part} acted before the target in {n} of {of:#best trial}",
    "open_ratio": "the ratio of {quantity} is open {sides}",
    "of_baseline": "the baseline, {baseline}: {note}",
    "along": "{names} change along with {against}",
    "law_leaves_out": "the law leaves out curves without a value and both ends, {labels}: where "
    "such curves are the largest or the smallest it leans",
    "few_sizes": "a law needs {needed:#size} with a known {quantity}, and there are {n}",
    "off_law": "curves lie {off:.0%} off the law beyond what their intervals say",
    "on_law": "if every curve lay on the law exactly, its exponent would be {exponent:.2f} "
    "[{low:.2f}, {high:.2f}]: the curves do not contradict that",
    # Of final losses
    "no_final": "{n} of {of:#run} {n:have} no final value: left out",
    "ended_at_target": "{n:#run} ended at a target, and may have been the best: least losses of "
    "the others can be too high (stop_at_target: false trains all to the budget)",
    "shared_runs": "one run gives the losses of several budgets, whose errors are not independent: "
    "error bars of single points may be too short",
    "rate_edge": "the best learning rate is the least or the largest that was tried at {n:#pair} "
    "of batch size and budget: a loss there may be too high",
    "single_budget": "one budget gives no steps at equal loss, and so no critical batch size (runs "
    "with two budgets or more would: --read final --target); what it can say is which curve is "
    "better at which batch size, and which batch size is best for each",
    "one_curve": "{curve} is the only curve: there is nothing to compare it with (--by names what "
    "makes a curve)",
    "single_runs": "one run of each: which curve is better cannot be told from noise; run each "
    "again with other seeds, two or more at each batch size",
    "equal_runs": "runs that repeat each other are equal to the last digit: they show no noise, "
    "from which a better curve could be told",
    "noise_of_others": "{curves}: single runs, whose noise is taken to be that of other curves",
    "selected": "a least loss over learning rates (at most {n}) wins by luck too: it counts as "
    "that many comparisons, and its interval is wider for that",
    "not_run_there": "{curve} has no run at {at:sizes}",
    "failed_runs": "{curve}: runs without a final value (diverged, or not finished) at {at:sizes}: "
    "ranked last there, and not compared",
    "equal_loss": "steps at equal loss, interpolated between {n} budgets of {low} to {high} "
    "{unit}s",
    "smallest_budget": "the smallest budget reached the target at {at:sizes}: left out",
    "one_budget": "there is one budget alone at {at:sizes}: left out",
    "no_budget": "no budget reached the target at {at:sizes}",
    "few_budgets": "fewer than four budgets at each batch size: the points have no error bars",
    "narrow_budgets": "{n:#budget/have} fewer than three batch sizes: left out",
    "outside": "the optimum at {n:#budget} lies outside of the tested batch sizes, or the best of "
    "these is the smallest or the largest: the law leaves it out",
    "flat": "the minimum at {n:#budget} is too flat, or too near to the edge of the tested batch "
    "sizes, for an interval of its own: it counts in the law with that error",
    "few_optima": "a law needs {needed:#budget} with an optimum that may lie between the tested "
    "batch sizes, and there are {n}",
    "unknown_noise": "a law needs four batch sizes at a budget: three do not show their noise",
    "flat_minima": "the minima are too flat for their noise: the law's exponent has no interval "
    "(more batch sizes or seeds at each budget, or budgets farther apart)",
}
"""By code. ``{at:sizes}`` names batch sizes; ``{n:#trial/have}`` counts trials (a pair: from the
least to the most), with a verb that agrees, and ``{n:have}`` is the verb alone."""


class Note(str):
    """A note is its text, so that it is printed, joined and written as it is: ``Note("censored",
    at=[8, 16])`` is "nothing reached the target at batch sizes 8, 16"."""

    code: str
    values: dict[str, Any]
    """What its text is made of, not to be changed."""

    def __new__(cls, code: str, /, **values: Any) -> Note:
        note = super().__new__(cls, _FORMATTER.vformat(TEXTS[code], (), values))
        note.code, note.values = code, values
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:  # for pickle and copy
        return (self.code,), self.values


def note_at(code: str, at: Sequence[int], **values: Any) -> list[Note]:
    """A note on the batch sizes ``at``; none without any."""
    return [Note(code, at=at, **values)] if at else []


def codes(notes: Iterable[Note]) -> list[str]:
    """The code of each note."""
    return [note.code for note in notes]


class _Formatter(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if spec == "sizes":
            return sizes(value)
        if spec.startswith("#"):
            noun, _, verb = spec[1:].partition("/")
            least, most = value if isinstance(value, tuple) else (value, value)
            return (f"{least} to " if least < most else "") + count(most, noun, verb)
        if spec in VERBS:
            return agreeing(len(value) if isinstance(value, list) else value, spec)
        return str(super().format_field(value, spec))


_FORMATTER = _Formatter()
