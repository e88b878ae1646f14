"""The packaged data: published curves of other authors, in the tables of a results folder.

``published`` names it in the place of any SOURCE. ``python -m validation.package_published``
makes it again from the numbers as they were read (docs/published.md).
"""
