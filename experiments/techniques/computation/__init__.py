"""Techniques that change how a step is computed, and not what, but for rounding."""
