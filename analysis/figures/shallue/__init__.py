"""The figures of Shallue et al. 2019, a file a figure; what they share is in ``figures.paper``."""
