"""The figures of Shallue et al. 2019, a file a figure or a family, from any results.

Most are panels of lines over batch sizes (``panel``, drawn by ``sheet``); which curves make a
panel is said by columns (``compared``).
"""
