"""What importers read with: the release of Shallue et al. 2019, MLPerf's points and their units."""
