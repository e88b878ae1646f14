"""The packaged data: published curves of other authors, in the tables of a results folder.

``published`` names it in the place of any SOURCE (docs/published.md).
"""
