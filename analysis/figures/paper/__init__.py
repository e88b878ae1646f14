"""What the figures of Shallue et al. 2019 (``figures.shallue``) share.

Most are panels of lines over batch sizes (``panel``, drawn by ``sheet``); which curves make a
panel is said by columns (``compared``).
"""
