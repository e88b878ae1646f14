"""``layout: auto``: which layout and which micro-batch train a study, by measurement.

Of each layout that the workers and the workload allow, the largest micro-batch that fits is found
by trying; then the layout with the shortest step is taken.
"""
