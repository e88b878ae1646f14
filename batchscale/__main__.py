"""``python -m batchscale``."""

from batchscale.cli.commands import main

main()
