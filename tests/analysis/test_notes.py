"""Notes: a text for each code, made of its values, and an entry of the page for each."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path

from analysis.notes import TEXTS, Note, note_at

ROOT = Path(__file__).resolve().parents[2]


def test_a_note_is_its_text_in_which_words_agree_with_numbers() -> None:
    assert note_at("censored", []) == []
    note = deepcopy(note_at("censored", [8, 16])[0])
    assert note == "nothing reached the target at batch sizes 8, 16"
    assert (note.code, note.values) == ("censored", {"at": [8, 16]})
    assert Note("other_searches", n=1).startswith("1 recorded trial belongs to other searches")
    assert Note("undecided", n=1).endswith("ended early, and counts as not having reached it")
    assert Note("enlarged", at=[8], n=(2, 2)) == Note("enlarged", at=[8], n=2)
    some = Note("trials_unknown", n=(48, 64), known=2)
    assert some.startswith("whether 48 to 64 trials were enough is not known: only 2 of the best ")
    assert " batch size 8 has no more," in Note("first_trials", n=5, at=[8], most=16)


def test_the_page_has_every_code_and_the_packages_give_each() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text().partition("## Notes\n")[2]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(code for cell in cells for code in re.findall(r"`(\w+)`", cell)) == sorted(TEXTS)
    files = [file for file in (ROOT / "analysis").rglob("*.py") if file.name != "notes.py"]
    source = "\n".join(file.read_text() for file in files)
    assert [code for code in TEXTS if f'"{code}"' not in source] == []
