"""Losses at fixed budgets against batch size: parabolas, and the law of their vertices."""
