"""Techniques that change which examples a step is trained on, and how they are seen."""
