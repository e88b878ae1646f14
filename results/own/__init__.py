"""The packaged data that was measured with these workloads, in the tables of a results folder.

``own`` names it in the place of any SOURCE. ``python -m validation.package_own`` makes it from
results folders (docs/published.md).
"""
