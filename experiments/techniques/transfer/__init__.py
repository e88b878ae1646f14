"""Techniques that begin with what was trained before: weights of a file, a teacher, a part of them
that does not move."""
