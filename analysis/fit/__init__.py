"""The curve that is fitted to the points, its intervals, and the regimes that follow from it."""
