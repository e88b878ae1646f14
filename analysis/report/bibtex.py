"""BibTeX for a report: this program, the protocol, and the citation of each source.

A citation that reads ``authors: title. venue, year`` becomes fields; any other one becomes the
``note`` unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PROGRAM = {
    "kind": "software",
    "key": "batchscale",
    "title": "{batchscale}: how far can the batch grow?",
    "author": "{The batchscale developers}",
    "license": "Apache-2.0",
}
"""As CITATION.cff has it, which no wheel holds; a test compares the two."""

PROTOCOL = {
    "kind": "article",
    "key": "shallue2019measuring",
    "title": "Measuring the Effects of Data Parallelism on Neural Network Training",
    "author": "Shallue, Christopher J. and Lee, Jaehoon and Antognini, Joseph and Sohl-Dickstein, "
    "Jascha and Frostig, Roy and Dahl, George E.",
    "journal": "Journal of Machine Learning Research",
    "volume": "20",
    "number": "112",
    "year": "2019",
}
"""The paper whose protocol is followed: CITATION.cff's reference."""

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_CITATION = re.compile(r"^(?P<author>[^:]+): (?P<title>[^:]+?[.?!]) (?P<venue>[^.:]\S.*), "
                       r"(?P<year>(?:19|20)\d\d)\.?$")  # fmt: skip
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def bibtex(version: str, sources: Sequence[Mapping[str, Any]]) -> str:
    """The entries, each paper once. ``sources`` are rows of that table."""
    entries: dict[str, dict[str, str]] = {}
    for entry in ({**PROGRAM, "version": version}, PROTOCOL, *map(_entry, sources)):
        present = next((e for e in entries.values() if _same(e, entry)), None)
        if present is None:
            entries[_free(entry["key"], entries)] = dict(entry)
        else:
            # The same paper, as the source of data: what it says of these.
            present.update({name: entry[name] for name in ("url", "note") if name in entry})
    return "\n\n".join(_text(key, entry) for key, entry in entries.items()) + "\n"


def escaped(text: str) -> str:
    """``text`` with what TeX would read otherwise written so that it prints."""
    return "".join(_SPECIAL.get(sign, sign) for sign in text)


def _entry(source: Mapping[str, Any]) -> dict[str, str]:
    citation, name = _str(source.get("citation")), _str(source.get("source")) or "source"
    entry = {"key": re.sub(r"[^A-Za-z0-9:_-]+", "-", name), **_fields(citation, name)}
    licence, address = _str(source.get("licence")), _str(source.get("address"))
    if address:
        entry["url"] = address if _plain(address) else escaped(address)
    notes = [entry.pop("note", "")]
    notes.append(f"data as packaged under the name {escaped(name)}" if citation else "")
    notes.append(f"licence {escaped(licence)}" if licence else "")
    entry["note"] = "; ".join(filter(None, notes)) or "no citation is recorded"
    return entry


def _fields(citation: str, name: str) -> dict[str, str]:
    match = _CITATION.match(citation)
    if match is None:
        note = {"note": escaped(citation)} if citation else {}
        return {"kind": "misc", "title": f"{{{escaped(name)}}}", **note}
    names = [part.strip() for part in match["author"].split(",")]
    fields = {
        "kind": "misc",
        "title": escaped(match["title"].rstrip(".")),
        "author": " and ".join(escaped(author) for author in names),
        "year": match["year"],
    }
    preprint = _ARXIV.search(match["venue"])
    if preprint:
        return {**fields, "eprint": preprint[1], "archiveprefix": "arXiv"}
    return {**fields, "howpublished": escaped(match["venue"])}


def _same(entry: Mapping[str, str], other: Mapping[str, str]) -> bool:
    # An unread citation has its source's name as title, as others of that source may have.
    read = "author" in entry or entry["note"] == other.get("note")
    return read and entry["title"].lower() == other["title"].lower()


def _free(key: str, taken: Mapping[str, Any]) -> str:
    names = (key if i == 1 else f"{key}-{i}" for i in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _plain(address: str) -> bool:
    return re.fullmatch(r"[\w\-.~:/?#@!$&'()*+,;=%]+", address) is not None


def _text(key: str, entry: Mapping[str, str]) -> str:
    fields = [f"  {n} = {{{text}}}," for n, text in entry.items() if n not in ("kind", "key")]
    return "\n".join([f"@{entry['kind']}{{{key},", *fields, "}"])


def _str(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
