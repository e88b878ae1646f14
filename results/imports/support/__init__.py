"""Helpers of importers: the release of Shallue et al. 2019, MLPerf's points and their units."""
