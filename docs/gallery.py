"""The gallery: every entry of gallery.yaml from packaged data, and the page that shows them.

``make gallery`` is ``python docs/gallery.py``: each command runs in this process and leaves a PNG
and its numbers as CSV (a report: its HTML) in figures/gallery/, and gallery.md is written.
Options:

    NAME ...   these entries only
    --renew    also renew the committed pictures, docs/img/gallery/
    --page     write gallery.md alone, draw nothing
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from validation.page import renew as renew_page

DOCS = Path(__file__).resolve().parent
LIST = DOCS / "gallery.yaml"
PAGE = DOCS / "gallery.md"
PICTURES = DOCS / "img" / "gallery"
FIGURES = DOCS.parent / "figures" / "gallery"

PIXELS_PER_INCH = 130
"""Pixels of the page that an inch of print takes; a picture has twice as many, for fine screens."""

WIDEST = 736
"""Pixels that the text of the site is wide."""

MOST_BYTES = 120_000
"""Of a committed picture."""


class Entry(BaseModel):
    """A figure or a report, and the one command that makes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    command: str = Field(pattern=r"^batchscale (plot|report) [^\n]+$")
    caption: str = Field(min_length=1)

    @property
    def arguments(self) -> list[str]:
        """What the command line gets."""
        return shlex.split(self.command)[1:]

    @property
    def is_report(self) -> bool:
        return self.arguments[0] == "report"


class Section(BaseModel):
    """Entries under one heading."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    section: str
    text: str = ""
    entries: list[Entry] = Field(min_length=1)


def sections(path: Path | None = None) -> list[Section]:
    """What gallery.yaml says.

    Raises:
        ValueError: a key that is none, a value that cannot be, a name that comes twice.
    """
    path = path or LIST
    try:
        listed = [Section(**item) for item in yaml.safe_load(path.read_text(encoding="utf-8"))]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path.name}: {place}: {first['msg']} ({first['input']!r})") from error
    names = [entry.name for entry in entries(listed)]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: {', '.join(sorted(repeated))}: an entry's name is its own")
    return listed


def entries(listed: Sequence[Section]) -> Iterator[Entry]:
    """All entries, in order."""
    for section in listed:
        yield from section.entries


def page(listed: Sequence[Section]) -> str:
    """What gallery.md has of the sections."""
    parts: list[str] = []
    for section in listed:
        parts += [f"\n## {section.section}\n", *([f"\n{section.text}\n"] if section.text else [])]
        parts += [_markdown(entry) for entry in section.entries]
    return "".join(parts).strip("\n")


def _markdown(entry: Entry) -> str:
    suffix = "html" if entry.is_report else "pdf"
    if entry.is_report:
        # The page is made where the site is built, so that a link to it holds there alone.
        seen = f'<!-- site: <a href="gallery/{entry.name}.html">Open this report.</a> -->'
    else:
        width = _pixels(PICTURES / f"{entry.name}.png")[0] // 2
        # The caption below is the text for those who do not see the picture: no second copy of it.
        seen = f'<img src="img/gallery/{entry.name}.png" alt="{entry.name}" width="{width}">'
    code = f"```sh\n{entry.command} -o {entry.name}.{suffix}\n```"
    return f"\n### {entry.name}\n\n{seen}\n\n{entry.caption}\n\n{code}\n"


def make(entry: Entry, folder: Path) -> Path:
    """Run an entry's command; its PNG or HTML in ``folder``.

    Raises:
        RuntimeError: the command failed; what it said.
    """
    from batchscale import cli

    made = folder / f"{entry.name}.{'html' if entry.is_report else 'png'}"
    folder.mkdir(parents=True, exist_ok=True)
    said = io.StringIO()
    status: object = 0
    with redirect_stdout(said), redirect_stderr(said):
        try:
            cli.main([*entry.arguments, "-o", str(made)])
        except SystemExit as end:
            status = end.code
    if status or not made.is_file():
        raise RuntimeError(f"{entry.name}: {entry.command}\n{said.getvalue()}")
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    return made


def renew(entry: Entry, made: Path) -> Path:
    """The committed picture of a figure: small, of 256 colours, and sharp on a fine screen."""
    from PIL import Image

    PICTURES.mkdir(parents=True, exist_ok=True)
    small = PICTURES / f"{entry.name}.png"
    with Image.open(made) as opened:
        whole = opened.convert("RGB")
        inches = whole.width / opened.info["dpi"][0]
    width = 2 * min(round(inches * PIXELS_PER_INCH), WIDEST)
    while True:
        size = (width, round(whole.height * width / whole.width))
        reduced = whole.resize(size, Image.Resampling.LANCZOS)
        reduced.quantize(256, dither=Image.Dither.NONE).save(small, optimize=True)
        if small.stat().st_size <= MOST_BYTES:
            return small
        width = 2 * round(width * 0.45)


def _pixels(picture: Path) -> tuple[int, int]:
    from PIL import Image

    if not picture.is_file():
        raise FileNotFoundError(f"there is no {picture}: python docs/gallery.py --renew")
    with Image.open(picture) as opened:
        return opened.size


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(description="Make the gallery.", prog="docs/gallery.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these entries only")
    parser.add_argument("--renew", action="store_true", help="renew the committed pictures too")
    parser.add_argument("--page", action="store_true", help="write gallery.md alone")
    options = parser.parse_args(arguments)
    listed = sections()
    every = list(entries(listed))
    if unknown := set(options.names) - {entry.name for entry in every}:
        parser.error(f"no entry is called {', '.join(sorted(unknown))}")
    chosen = (
        [] if options.page else [e for e in every if not options.names or e.name in options.names]
    )
    began = time.monotonic()
    failed = 0
    for place, entry in enumerate(chosen, 1):
        print(f"[{place:2d}/{len(chosen)}] {entry.name} ", end="", flush=True)
        start = time.monotonic()
        try:
            made = make(entry, FIGURES)
        except RuntimeError as error:
            failed += 1
            print(f"failed\n{error}", flush=True)
            continue
        shrunk = f", {renew(entry, made).name}" if options.renew and not entry.is_report else ""
        print(f"{time.monotonic() - start:.1f} s{shrunk}", flush=True)
    if options.renew:
        kept = {f"{entry.name}.png" for entry in every if not entry.is_report}
        for left in sorted(PICTURES.glob("*.png")):
            if left.name not in kept:
                left.unlink()
                print(f"removed {left.name}: no entry has its name")
    renew_page({"gallery": page(listed)}, PAGE)
    if chosen:
        print(f"{len(chosen) - failed} in {FIGURES}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
