"""Figures of what is measured while trials train."""
