"""Packs of mixed batch sizes: several packs of small models in one process on one GPU."""
