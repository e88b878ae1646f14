"""The common parts of the figures of Shallue et al. 2019 (``figures.shallue``).

Most are panels of lines over batch sizes (``drawing.panels``); ``compared`` groups curves into
panels.
"""
