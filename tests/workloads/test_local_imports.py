"""Which modules of its own folder a file imports, by its syntax tree."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from workloads import WorkloadError
from workloads.user_code.local_imports import local_modules

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write("work.py", "import a", **{"a.py": ""})``: files of a folder; the first one's path."""

    def write(name: str, text: str, **others: str) -> Path:
        for place, content in {name: text, **others}.items():
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).write_text(content)
        return tmp_path / name

    return write


def names(file: Path) -> dict[str, str]:
    return {
        name: path.relative_to(file.parent).as_posix() for name, path in local_modules(file).items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "import my_lm",
        "import my_lm as other, math",
        "from my_lm import Net",
        "from my_lm import *",
        "from .my_lm import Net",
        "from . import my_lm",
        "def model():\n    import my_lm",
        "class A:\n    def model(self):\n        from my_lm import Net",
        "try:\n    import my_lm\nexcept ImportError:\n    pass",
        "from importlib import import_module\nx = import_module('my_lm')",
        "import importlib\ndef f(): return importlib.import_module('my_lm').Net",
        "import importlib\nx = importlib.import_module('.my_lm', __package__)",
        "x = __import__('my_lm')",
    ],
)
def test_every_form_of_import(write: Write, text: str) -> None:
    assert names(write("work.py", text, **{"my_lm.py": "Net = 1"})) == {"my_lm": "my_lm.py"}


def test_packages_and_what_is_imported_through_one_another(write: Write) -> None:
    file = write(
        "work.py",
        "import lib.net.deep\nfrom plain.part import f\n",
        **{
            "lib/__init__.py": "from .sizes import SIZE",
            "lib/sizes.py": "from ..shared import ONE\nfrom shared import TWO",
            "lib/net/__init__.py": "from . import block",
            "lib/net/block.py": "import work",  # back to the file itself
            "lib/net/deep.py": "import shared",
            "lib/unused.py": "",
            "plain/part.py": "from .piece import f",
            "plain/piece.py": "",
            "shared.py": "import lib",
            "unused.py": "",
        },
    )
    assert names(file) == {
        "lib": "lib/__init__.py",
        "lib.net": "lib/net/__init__.py",
        "lib.net.block": "lib/net/block.py",
        "lib.net.deep": "lib/net/deep.py",
        "lib.sizes": "lib/sizes.py",
        "plain.part": "plain/part.py",
        "plain.piece": "plain/piece.py",
        "shared": "shared.py",
    }


def test_a_star_takes_the_submodules_that_a_package_lists(write: Write) -> None:
    packages = {"lib/__init__.py": "__all__ = ['net', 'f']\nf = 1", "lib/net.py": ""}
    assert set(names(write("work.py", "from lib import *", **packages))) == {"lib", "lib.net"}
    alone = write("other.py", "import plain", **{"plain.py": "__all__ = ['work']\nwork = 1"})
    assert set(names(alone)) == {"plain"}


@pytest.mark.parametrize(
    "text",
    [
        "import torch, numpy.linalg, json",
        "from batchscale import Classification",
        "from workloads import Classification",
        "import not_there",
        "name = 'my_lm'\nimport importlib\nimportlib.import_module(name)",
        "from ..my_lm import Net",  # beyond the folder
        "this is no Python: import my_lm",
    ],
)
def test_what_is_not_local(write: Write, text: str) -> None:
    assert names(write("work.py", text, **{"my_lm.py": ""})) == {}


def test_the_standard_library_and_what_is_installed_come_first(write: Write) -> None:
    """A folder of data may be called like a package, as that of a logger's runs is."""
    beside = {"json.py": "", "pandas/part.csv": "1", "results/runs/part.csv": "1"}
    assert names(write("work.py", "import json, pandas, results", **beside)) == {}


@pytest.mark.parametrize(
    ("beside", "place", "owner"),
    [
        ("pandas.py", "pandas.py", "an installed package"),
        ("pandas/__init__.py", "pandas/", "an installed package"),
        ("results.py", "results.py", "one of batchscale's own packages"),
    ],
)
def test_a_module_of_the_name_of_a_package_is_refused(
    write: Write, beside: str, place: str, owner: str
) -> None:
    """Which one is meant cannot be known: as a script the file would get the one beside it."""
    file = write("work.py", "import torch\nimport pandas, results\n", **{beside: ""})
    with pytest.raises(WorkloadError) as caught:
        local_modules(file)
    name = place.rstrip("/").removesuffix(".py")
    assert (
        str(caught.value)
        == f"work.py imports '{name}', which is both {place} beside it and {owner}"
    )
    assert caught.value.hint == f"rename {place}"


def test_a_file_that_is_installed_has_none() -> None:
    installed = Path(sysconfig.get_paths()["purelib"], "torch", "__init__.py").resolve()
    assert installed.is_file()
    assert local_modules(installed) == {}
    import workloads.digits

    assert local_modules(Path(workloads.digits.__file__).resolve()) == {}
