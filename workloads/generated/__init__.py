"""Data that are computed where they are trained on, without end, and workloads made of them."""
