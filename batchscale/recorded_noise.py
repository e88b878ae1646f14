"""The noise scales that sweeps have recorded, for Python."""

from __future__ import annotations

from typing import Any, Unpack

from analysis.figure_data import FigureData
from analysis.fit.interval import Interval
from batchscale.analysis import QueryOptions, Source, query_of


def noise_scales(*sources: Source, **options: Unpack[QueryOptions]) -> list[dict[str, Any]]:
    """The gradient noise scales that trials with the technique ``noise_scale`` have recorded.

    The options are those of ``regimes``.

    Returns:
        For each curve its group, ``label``, ``target``, ``example_unit``, ``critical_batch_size``
        (as of ``regimes``) and ``batch_sizes``, a list. Each has the ``steps`` to the target, the
        ``trials`` that came to it first (three at most), and their noise scale, in examples, on
        the whole trajectory (``path``), in its first quarter (``beginning``), from 40 to 60 % of it
        (``half``), in its last quarter (``end``), and with steps weighted by how much the
        target's metric improves in them (``by_improvement``): ``value``, ``low`` and ``high`` at
        90 %, ``measured_steps`` and ``notes``; None where nothing was measured.
    """
    from analysis.noise.scales import by_curve

    return [
        {
            **curve.group,
            "label": curve.label,
            "target": str(curve.target),
            "example_unit": curve.example_unit,
            "critical_batch_size": (fit.critical_batch_size if fit else Interval()).to_dict(),
            "batch_sizes": [trajectory.to_dict() for trajectory in trajectories],
        }
        for curve, fit, trajectories in by_curve(FigureData(query_of(sources, options)))
    ]
