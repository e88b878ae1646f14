"""A user's file and the modules beside it: imported as they stand, apart from other folders'."""

from __future__ import annotations

import builtins
import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import batchscale as bs
from workloads import WorkloadError, load
from workloads.user_code.user_files import import_file

WORK = """
import my_lm
from lib.net import Net

def lazy():
    from my_lm import SIZE
    import importlib
    return SIZE, importlib.import_module("my_lm").SIZE, Net.SIZE
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``folder("a", size=7)``: a folder with ``work.py`` and what it imports; the path of that."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def folder(name: str, size: int = 1, text: str = WORK) -> Path:
        place = tmp_path / name
        (place / "lib").mkdir(parents=True, exist_ok=True)
        (place / "work.py").write_text(text)
        (place / "my_lm.py").write_text(f"SIZE = {size}\n")
        (place / "lib" / "net.py").write_text("import my_lm\nclass Net:\n    SIZE = my_lm.SIZE\n")
        return place / "work.py"

    return folder


def test_two_folders_do_not_get_each_others_modules(folder: Callable[..., Path]) -> None:
    """Not even in imports that run when both have been loaded."""
    first, second = import_file(folder("a", 1)), import_file(folder("b", 2))
    assert first.lazy() == (1, 1, 1)
    assert second.lazy() == (2, 2, 2)
    assert import_file(folder("a", 1)) is first
    assert "my_lm" not in sys.modules


def test_an_edited_module_is_read_anew_with_all_that_import_it(folder: Callable[..., Path]) -> None:
    """Within the same second, and of the same length: bytecode's stamp would not tell."""
    before = import_file(folder("a", 1))
    after = import_file(folder("a", 2))
    assert before.lazy() == (1, 1, 1)
    assert after.lazy() == (2, 2, 2)
    net = pickle.loads(pickle.dumps(before.Net))
    assert net is before.Net
    assert import_file(folder("a", 1)).lazy() == (1, 1, 1)


def test_two_files_of_a_folder_share_its_modules(folder: Callable[..., Path]) -> None:
    work = import_file(folder("a"))
    (work_folder,) = {Path(str(work.__file__)).parent}
    (work_folder / "opt.py").write_text("from .lib.net import Net\nimport work\n")
    opt = import_file(work_folder / "opt.py")
    assert opt.Net is work.Net
    assert opt.work is work


def test_only_imports_of_the_folders_own_modules_are_changed(folder: Callable[..., Path]) -> None:
    before = (builtins.__import__, importlib.import_module)
    text = (
        "import os.path, importlib.util\n"
        "from importlib import metadata, import_module\n"
        "decoder = import_module('.decoder', 'json')\n"
        "answers = importlib.util.find_spec('json'), metadata.version('torch'), os.path.sep\n"
    )
    module = import_file(folder("a", text=text))
    assert all(module.answers)
    assert module.decoder is importlib.import_module("json.decoder")
    assert (builtins.__import__, importlib.import_module) == before
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_there'"):
        import_file(folder("b", text="import not_there"))


def test_what_a_module_beside_it_raises_passes_and_is_tried_again(
    folder: Callable[..., Path],
) -> None:
    file = folder("a")
    (file.parent / "my_lm.py").write_text("SIZE = 1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        import_file(file)
    assert import_file(folder("a", 3)).lazy() == (3, 3, 3)


def test_a_file_of_any_name(folder: Callable[..., Path]) -> None:
    place = folder("a").parent
    for name in ("my-work.v2.py", "lib.py"):  # beside the folder lib, which imports find first
        (place / name).write_text("from my_lm import SIZE\nclass Here: ...\n")
        module = import_file(place / name)
        assert module.SIZE == 1
        assert pickle.loads(pickle.dumps(module.Here)) is module.Here


SCRIPT = """
import batchscale as bs

class Mine(bs.Classification):
    target = "validation_error < 0.3"
    def data(self): ...
    def model(self): ...

def main():
    return bs.{name}()

{below}
"""
FUNCTIONS = sorted(name for name in bs.__all__ if not name[0].isupper())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_of_ours_is_called_while_a_file_is_loaded(
    folder: Callable[..., Path], name: str
) -> None:
    file = folder("a", text=SCRIPT.format(name=name, below="run = main()"))
    with pytest.raises(
        WorkloadError, match=rf"^work.py calls batchscale.{name}\(\) while"
    ) as caught:
        load("work.py:Mine", base=file.parent)
    assert caught.value.hint == 'put the call below: if __name__ == "__main__":'
    below = 'if __name__ == "__main__":\n    run = main()'
    file = folder("a", text=SCRIPT.format(name=name, below=below))
    assert load("work.py:Mine", base=file.parent).name == "Mine"
    assert load("work.py", base=file.parent).name == "Mine"


def test_such_a_call_in_a_module_that_a_file_imports(folder: Callable[..., Path]) -> None:
    file = folder("a", text="from script import Mine\n")
    (file.parent / "script.py").write_text(SCRIPT.format(name="trial", below="main()"))
    with pytest.raises(WorkloadError, match=r"^script.py calls batchscale.trial\(\)"):
        import_file(file)


def test_elsewhere_the_functions_do_what_they_do() -> None:
    assert "digits-mlp" in bs.list("workloads")
