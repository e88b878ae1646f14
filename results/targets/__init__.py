"""Steps to target, from the evaluations of recorded trials."""
