"""BibTeX: what is parsed, what is not guessed, and that it is what CITATION.cff says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

import results
from analysis.report.bibtex import PROGRAM, PROTOCOL, bibtex, escaped

ROOT = Path(__file__).resolve().parents[2]


SOURCES = results.open("published").sources.set_index("source")


def rows(*names: str) -> list[dict[str, Any]]:
    columns = SOURCES.loc[[*names], ["citation", "licence", "address"]]
    return [{str(k): v for k, v in row.items()} for row in columns.reset_index().to_dict("records")]


def test_our_own_and_the_protocol_are_those_of_the_citation_file() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROGRAM["title"].replace("{", "").replace("}", "") == cff["title"]
    assert PROGRAM["author"] == "{" + cff["authors"][0]["name"] + "}"
    assert PROGRAM["license"] == cff["license"]
    (paper,) = cff["references"]
    names = [f"{a['family-names']}, {a['given-names']}" for a in paper["authors"]]
    assert PROTOCOL["author"] == " and ".join(names)
    for ours, theirs in (("title", "title"), ("journal", "journal"), ("volume", "volume"),
                         ("number", "issue"), ("year", "year")):  # fmt: skip
        assert PROTOCOL[ours] == str(paper[theirs])


def test_a_citation_becomes_fields() -> None:
    text = bibtex("1.2", rows("zhang_2024"))
    assert "  version = {1.2}," in text
    entry = text.split("@misc{zhang_2024,")[1]
    assert "title = {How Does Critical Batch Size Scale in Pre-training?}" in entry
    assert "author = {H. Zhang and D. Morwani and" in entry
    assert "eprint = {2410.21676}" in entry
    assert "year = {2024}" in entry
    assert "url = {https://github.com/hlzhang109/critical-batch-size}" in entry
    assert "licence MIT" in entry


def test_the_protocols_paper_stands_once_when_it_is_a_source_too() -> None:
    text = bibtex("1", rows("shallue_2019_digitized"))
    assert text.count("Measuring the Effects of Data Parallelism") == 1
    assert "url = {https://github.com/google-research/batch_science}" in text
    assert re.findall(r"@(\w+){", text) == ["software", "article"]


def test_what_cannot_be_parsed_is_not_guessed() -> None:
    (*_, entry) = bibtex("1", rows("mlperf_rcp")).split("\n\n")
    assert entry.startswith("@misc{mlperf_rcp,")
    assert "author" not in entry
    assert "note = {MLPerf Training and HPC reference convergence points" in entry


def test_signs_of_tex_print_and_keys_differ() -> None:
    assert escaped("5% of A&B_c {x}") == r"5\% of A\&B\_c \{x\}"
    row = {"source": "a b", "citation": "50% & more", "licence": None, "address": None}
    text = bibtex("1", [row, {**row, "source": "a/b"}])
    assert r"50\% \& more" in text
    assert "@misc{a-b," in text
    assert "@misc{a-b-2," in text
    assert text.count("{") == text.count("}")


def test_every_packaged_source_has_an_entry() -> None:
    text = bibtex("1", rows(*SOURCES.index))
    assert len(re.findall(r"^@", text, re.MULTILINE)) == 2 + len(SOURCES) - 1
