"""How trials are measured: what of a split is read, and when a miss of the target is certain."""
