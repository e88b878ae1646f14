"""The gallery: its page is what its list says, every figure is in it, every picture is there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.main import get_command

from analysis.figures import names
from batchscale.cli.app import app
from results.storage.location import PACKAGED
from tests.test_imports import ROOT
from validation.page import blocks

ONE = """\
- section: Regimes
  entries:
    - name: one
      command: batchscale plot rates own --where experiment=\\'gallery-subsets\\'
      caption: 'A "b" `c`. D.'
"""


def parsed(entry: Any) -> dict[str, Any]:
    """The command's arguments; wrong usage raises."""
    group: Any = get_command(app)
    name, *rest = entry.arguments
    context = group.commands[name].make_context(name, [*rest, "-o", "x.png"])
    found: dict[str, Any] = context.params
    return found


def test_the_page_is_what_the_list_says(gallery: Any) -> None:
    made = blocks(gallery.PAGE.read_text(encoding="utf-8"))["gallery"]
    assert made == gallery.page(gallery.sections())


def test_every_figure_is_in_it(gallery: Any) -> None:
    drawn = {
        parsed(entry)["figure"]
        for entry in gallery.entries(gallery.sections())
        if not entry.is_report
    }
    assert set(names()) == drawn


def test_every_command_is_right_and_of_packaged_or_made_data(gallery: Any) -> None:
    tables = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/made").glob("*.csv")}
    for entry in gallery.entries(gallery.sections()):
        assert "-o" not in entry.arguments, entry.name
        assert set(parsed(entry)["sources"]) <= {*PACKAGED, *tables}, entry.name


def test_every_committed_picture_is_there_and_small(gallery: Any) -> None:
    found = {path.name: path for path in gallery.PICTURES.iterdir()}
    wanted = [e.name for e in gallery.entries(gallery.sections()) if not e.is_report]
    assert set(found) == {f"{name}.png" for name in wanted}
    for name, path in found.items():
        assert path.stat().st_size <= gallery.MOST_BYTES, name
        with Image.open(path) as picture:
            assert 400 <= picture.width <= 2 * gallery.WIDEST, name


@pytest.fixture
def elsewhere(gallery: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of docs/ and figures/, with a list of one entry."""
    for name in ("LIST", "PAGE", "FIGURES"):
        monkeypatch.setattr(gallery, name, tmp_path / Path(getattr(gallery, name)).name)
    monkeypatch.setattr(gallery, "PICTURES", tmp_path / "img")
    (tmp_path / "gallery.yaml").write_text(ONE)
    (tmp_path / "gallery.md").write_text("<!-- made: gallery -->\n<!-- end -->\n")
    (tmp_path / "img").mkdir()
    return tmp_path


@pytest.mark.slow
def test_an_entry_is_made_with_its_numbers(
    gallery: Any, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "img" / "gone.png").write_bytes(b"")
    assert gallery.main(["--renew"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("[ 1/1] one ")
    assert "removed gone.png" in said
    assert [path.name for path in (elsewhere / "img").iterdir()] == ["one.png"]
    assert (elsewhere / "gallery" / "one.csv").read_text().startswith("curve,")
    with Image.open(elsewhere / "gallery" / "one.png") as whole:
        inches = whole.width / whole.info["dpi"][0]
    with Image.open(elsewhere / "img" / "one.png") as small:
        assert small.width == 2 * round(inches * gallery.PIXELS_PER_INCH)
    page = (elsewhere / "gallery.md").read_text()
    assert 'alt="one"' in page
    assert '\n\nA "b" `c`. D.\n\n' in page
    command = "batchscale plot rates own --where experiment=\\'gallery-subsets\\' -o one.pdf"
    assert f"```sh\n{command}\n```" in page


def test_a_command_that_fails_is_told_and_the_status_is_1(
    gallery: Any, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(gallery.DOCS / "img" / "gallery" / "rates.png", elsewhere / "img" / "one.png")
    (elsewhere / "gallery.yaml").write_text(ONE.replace("plot rates", "plot nothing"))
    assert gallery.main([]) == 1
    said = capsys.readouterr().out
    assert "one failed" in said
    assert "no figure is called 'nothing'" in said


@pytest.mark.usefixtures("elsewhere")
def test_a_name_that_is_none_is_wrong_usage(
    gallery: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        gallery.main(["two"])
    assert end.value.code == 2
    assert "no entry is called two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE.replace("caption", "captoin"), "captoin"),
        (ONE.replace("name: one", "name: One_1"), "name"),
        (ONE.replace("batchscale plot", "rm"), "command"),
        (ONE + ONE, "one: an entry's name is its own"),
    ],
)
def test_a_wrong_list_is_told(gallery: Any, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "gallery.yaml").write_text(text)
    with pytest.raises(ValueError, match=said):
        gallery.sections(tmp_path / "gallery.yaml")


def test_a_report_is_a_page_of_the_site(gallery: Any) -> None:
    entry = gallery.Entry(name="whole", command="batchscale report own", caption="All of it.")
    page = gallery.page([gallery.Section(section="Report", entries=[entry])])
    assert '<!-- site: <a href="gallery/whole.html">' in page
    assert "batchscale report own -o whole.html" in page
    assert "<img" not in page
