"""What `import analysis` brings along."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_heavy_comes_with_it() -> None:
    code = (
        "import sys, analysis\n"
        "heavy = {'torch', 'ray', 'matplotlib', 'seaborn', 'scipy', 'duckdb'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert callable(analysis.curves) and callable(analysis.regimes)\n"
        "from analysis import figures\n"
        "assert 'matplotlib' not in sys.modules and 'steps' in figures.names()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
