"""The site: what its pages become, that its API page has every public name, that it can be made."""

from __future__ import annotations

import re
import runpy
from typing import Any

import numpy as np
import pytest

import analysis
import batchscale
from analysis.figures import names
from tests.batchscale.blocks import ROOT, blocks

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\.\. auto(?:function|class|exception|module):: (\S+)$", API, re.M))


@pytest.fixture(scope="module")
def conf() -> Any:
    """The names that docs/conf.py sets."""
    return runpy.run_path(str(ROOT / "docs" / "conf.py"))


@pytest.mark.parametrize("package", [batchscale, analysis], ids=lambda one: one.__name__)
def test_every_public_name_is_in_the_api_page(package: Any) -> None:
    wanted = {f"{package.__name__}.{name}" for name in package.__all__}
    assert wanted <= DOCUMENTED


def test_what_the_api_page_documents_is_public() -> None:
    for name in DOCUMENTED:
        package, _, last = name.rpartition(".")
        if package in ("batchscale", "analysis"):
            assert last in {*vars(analysis), *batchscale.__all__}, name
    assert names()  # analysis.figures documents its names by a function


def test_a_page_is_told_for_the_site(conf: Any) -> None:
    source = [
        "see [concepts.md](../concepts.md), [words](concepts.md#words)\n"
        "```python my_opt.py\nx = 1\n```\n```sh cloud\nray up\n```\n"
        '<!-- site: <a href="x.html">Open</a> --><!-- kept -->\n20 % of it\n```sh\n20 % 3\n```\n'
    ]
    conf["for_the_site"](None, "page", source)
    assert source[0] == (
        "see [](../concepts.md), [words](concepts.md#words)\n"
        "```{code-block} python\n:caption: my_opt.py\nx = 1\n```\n```sh cloud\nray up\n```\n"
        '<a href="x.html">Open</a><!-- kept -->\n20\u00a0% of it\n```sh\n20 % 3\n```\n'
    )


def test_an_attributes_colon_is_no_type(conf: Any) -> None:
    lines = ["X(1): None where nothing was reached.", "Raises: a"]
    conf["hide_colon"](None, "attribute", "n", None, None, lines)
    assert ":" not in lines[0]
    assert lines[1] == "Raises: a"
    conf["show_colon"](None, "attribute", "n", None, None, lines)
    assert lines[0] == "X(1): None where nothing was reached."


def test_no_page_has_the_name_of_one_that_the_site_makes_itself() -> None:
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert not pages & {"search", "genindex", "modindex", "py-modindex"}


def test_every_page_begins_with_its_one_title() -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# "), path.name
        for block in blocks(path.relative_to(ROOT).as_posix()):
            text = text.replace(block.text, "")
        assert len(re.findall(r"^# ", text, re.M)) == 1, path.name


def test_the_pictures_of_the_concepts_show_what_the_page_says(pictures: Any) -> None:
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    sizes, steps = pictures.SIZES, pictures.STEPS
    truth = np.log((sizes * steps).min() / steps.min())
    ends = np.array([each.ends("critical_batch_size", 0.9) for each in pictures._sweeps()])
    _, low, high = ends.T
    assert int((~((low > truth) | (high < truth))).sum()) == 19  # NaN, an open end, is neither
    assert int(np.isnan(ends).any(1).sum()) == 4
    at_critical = np.interp(np.log(pictures.CRITICAL), np.log(sizes), np.log(steps))
    assert np.exp(at_critical) == pytest.approx(2 * pictures.MIN_STEPS, rel=1e-3)
    shown = set(re.findall(r'src="img/(concepts-\w+\.png)"', text))
    assert shown == {path.name for path in (ROOT / "docs" / "img").glob("concepts-*.png")}
