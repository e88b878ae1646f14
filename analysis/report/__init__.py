"""One self-contained page about results: findings, interactive curves, tables, sources.

``payload`` is everything that the page shows, as plain values; ``page`` makes HTML of it.
"""

from analysis.report.page import page
from analysis.report.payload import payload

__all__ = ["page", "payload"]
