"""The sources of Python's own standard library as text: real text, there on every machine.

The modules are those that every version from 3.11 to 3.14 has on every platform; folders of tests
are left out. Each version of Python has other sources: a workload's identity has a hash of them.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

from workloads.errors import WorkloadError

_NAMES = """
__future__ _collections_abc _markupbase _py_abc _pydecimal _pyio _sitebuiltins _strptime
_threading_local _weakrefset abc argparse ast asyncio base64 bdb bisect bz2 cProfile calendar cmd
code codecs codeop collections colorsys compileall concurrent configparser contextlib contextvars
copy copyreg csv dataclasses datetime dbm decimal difflib dis doctest email enum filecmp fileinput
fnmatch fractions ftplib functools genericpath getopt getpass gettext glob graphlib gzip hashlib
heapq hmac html http imaplib importlib inspect io ipaddress json keyword linecache locale logging
lzma mailbox mimetypes modulefinder multiprocessing netrc ntpath numbers opcode operator optparse
os pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats
pty py_compile pyclbr pydoc queue quopri random re reprlib rlcompleter runpy sched secrets
selectors shelve shlex shutil signal site smtplib socket socketserver sqlite3 ssl stat statistics
string stringprep struct subprocess symtable sysconfig tabnanny tarfile tempfile textwrap this
threading timeit token tokenize tomllib trace traceback tracemalloc tty types typing unittest
urllib uuid wave warnings weakref webbrowser wsgiref xml xmlrpc zipapp zipfile zipimport zoneinfo
"""
MODULES = tuple(_NAMES.split())
_TESTS = {"test", "tests"}


def read_standard_library(folder: Path | None = None) -> bytes:
    """The files one after another, with line feeds as ends of lines.

    Their order is that of a hash of their names: each part of the text has files of all kinds.

    Args:
        folder: the standard library's; that of this Python unless given.

    Raises:
        WorkloadError: a module has no source there.
    """
    folder = folder or Path(sysconfig.get_path("stdlib"))
    files = {name: path for module in MODULES for name, path in _sources(folder, module).items()}
    order = sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())
    return b"".join(files[name].read_bytes().replace(b"\r\n", b"\n") for name in order)


def _sources(folder: Path, module: str) -> dict[str, Path]:
    """The files of a module by their names, which are the same on every platform."""
    file = folder / f"{module}.py"
    paths = [file] if file.is_file() else list((folder / module).rglob("*.py"))
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    kept = {name: path for name, path in names.items() if not _TESTS & {*name.split("/")}}
    if not kept:
        raise WorkloadError(
            f"text stdlib: module {module} has no source in {folder}",
            hint="install Python with its sources, or choose another text, e.g. file:PATH",
        )
    return kept
