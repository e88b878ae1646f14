"""Importing a user's file, and the modules beside it: once for each of their contents.

The modules of a folder are imported as submodules of a package that we make for the folder,
and their own ``import`` statements look there first. So two folders may each have a ``layers.py``,
an edited file is read again together with the files that import it, and no installed package is
hidden from other code.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from workloads.errors import WorkloadError
from workloads.user_code.import_guard import importing
from workloads.user_code.local_imports import digest, find, find_local, local_modules
from workloads.user_code.trust import admit

_PREFIX = "batchscale_files_"


def find_file(path: str, base: Path) -> Path | None:
    """The file that a path below ``base`` names; None if it does not exist or cannot exist."""
    try:
        file = (base / Path(path).expanduser()).resolve()
        return file if file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, nobody's home folder
        return None


def import_file(file: Path) -> ModuleType:
    """Import a user's file once for each content of it and of its local modules.

    What it defines can be pickled in this process. Its folder goes to the end of ``sys.path``, for
    imports that are not statements.

    Args:
        file: resolved.

    Raises:
        WorkloadError: it is not a Python file, a module beside it has the name of an installed
            one, or it calls a function of ``batchscale`` (``import_guard``). What the file itself
            raises passes unchanged.
        RefusedCodeError: a record names it, and it is not trusted (``trust``).
    """
    if b"\0" in file.read_bytes():
        raise WorkloadError(f"{file} is not a Python file: it contains NUL bytes")
    contents = {path: digest(path) for path in (file, *local_modules(file).values())}
    for path, content in contents.items():
        admit(path, content)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    folder = _folders.get(file.parent)
    if folder is None or not folder.holds(contents):
        folder = _folders[file.parent] = _folder_of(file.parent, contents)
    return folder.load(file)


class _Folder:
    """The modules that were imported from one folder, all in the state that they had then."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.loaded: dict[Path, str] = {}
        """The digest of each file when it was executed."""
        self.builtins = {**vars(builtins), "__import__": self._import}
        spec = ModuleSpec(self.name, None, is_package=True)
        spec.submodule_search_locations = [str(path)]
        package = module_from_spec(spec)
        vars(package)["__batchscale_folder__"] = self
        sys.modules[self.name] = package

    def holds(self, contents: Mapping[Path, str]) -> bool:
        """Whether none of these files was executed with another content than it has now."""
        return all(self.loaded.get(path, now) == now for path, now in contents.items())

    def load(self, file: Path) -> ModuleType:
        """A file of the folder, as a module."""
        name = f"{self.name}.{self._module_name(file)}"
        if name in sys.modules:
            return sys.modules[name]
        loader = _Loader(name, str(file), self)
        spec = spec_from_file_location(name, file, loader=loader)
        if spec is None:
            raise WorkloadError(f"{file} cannot be imported as Python")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _module_name(self, file: Path) -> str:
        """The name by which others of the folder import it, if there is one."""
        plain = "." not in file.stem and find(self.path, file.stem) == file
        return file.stem if plain else re.sub(r"\W", "_", file.name)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """``__import__`` of the folder's modules: what is local comes from the folder's package."""
        top = name.partition(".")[0]
        if level == 0 and top == "importlib":
            module = builtins.__import__(name, globals, locals, fromlist or (), 0)
            return self._importlib if module is importlib else module
        if level or find_local(self.path, top) is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = importlib.import_module(f"{self.name}.{name}")
        if not fromlist:
            return sys.modules[f"{self.name}.{top}"]
        return builtins.__import__(module.__name__, globals, locals, fromlist, 0)

    @functools.cached_property
    def _importlib(self) -> ModuleType:
        """``importlib`` for the folder's modules: ``import_module`` looks in the folder first."""
        module = ModuleType("importlib", importlib.__doc__)
        vars(module).update({**vars(importlib), "import_module": self._import_module})
        module.__getattr__ = functools.partial(getattr, importlib)  # type: ignore[method-assign]
        return module

    def _import_module(self, name: str, package: str | None = None) -> ModuleType:
        local = not name.startswith(".") and find_local(self.path, name.partition(".")[0])
        return importlib.import_module(f"{self.name}.{name}" if local else name, package)


_folders: dict[Path, _Folder] = {}
"""The present state of each folder. Earlier ones live on in ``sys.modules``, for their objects."""


def _folder_of(path: Path, contents: Mapping[Path, str]) -> _Folder:
    """A state of the folder in which the files have these contents, by a name that derives from
    them: the same in another process."""
    text = "\n".join([str(path), *(f"{file} {contents[file]}" for file in sorted(contents))])
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    for number in itertools.count():
        name = f"{_PREFIX}{key}_{number}"
        if name not in sys.modules:
            return _Folder(path, name)
        folder: _Folder = vars(sys.modules[name])["__batchscale_folder__"]
        if folder.holds(contents):
            return folder
    raise AssertionError("unreachable")


class _Loader(SourceFileLoader):
    """Executes a local module from the disk, with the imports of its folder."""

    def __init__(self, name: str, path: str, folder: _Folder) -> None:
        super().__init__(name, path)
        self._folder = folder

    def get_code(self, fullname: str) -> CodeType:
        """Compile from the source: bytecode may be older than an edit within the same second."""
        source = self.get_data(self.path)
        content = self._folder.loaded[Path(self.path)] = hashlib.sha256(source).hexdigest()
        admit(Path(self.path), content)  # also a module whose name no import statement says
        code: CodeType = self.source_to_code(source, self.get_filename(fullname))
        return code

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._folder.builtins
        with importing(Path(self.path)):
            super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the submodules of a folder's package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if not fullname.startswith(_PREFIX):
            return None
        package, _, name = fullname.partition(".")
        folder: _Folder | None = getattr(sys.modules.get(package), "__batchscale_folder__", None)
        place = find(folder.path, name) if folder is not None and name else None
        if folder is None or place is None:
            return None
        if place.is_dir():
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        inside = [str(place.parent)] if place.name == "__init__.py" else None
        loader = _Loader(fullname, str(place), folder)
        return spec_from_file_location(
            fullname, place, loader=loader, submodule_search_locations=inside
        )


sys.meta_path.insert(0, _Finder())
