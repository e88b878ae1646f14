"""The packaged data: everybody's published curves, in the tables of every other results folder.

``published`` names it wherever a SOURCE is asked for. ``python -m validation.package_published``
makes it again from the numbers as they were read (docs/published.md).
"""
