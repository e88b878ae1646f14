"""``python -m batchscale``."""

from batchscale.cli import main

main()
