"""Data that others measured, as results datasets: one module a kind."""
