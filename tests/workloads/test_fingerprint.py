"""Identity: code, fields and name count; comments, docstrings and layout do not."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Classification, WorkloadError, identity, load
from workloads.digits import DigitsMLP
from workloads.fingerprint import text_hash

FILE = '''
"""A docstring."""
import torch
from workloads import Classification

class MyModel(Classification):
    target = "validation_error < 0.05"
    width: int = 64
    """What the width is."""

    def data(self):
        """Data."""
        return {}  # nothing
    def model(self): return torch.nn.Linear(3, self.width)
'''


@pytest.fixture
def identify(tmp_path):
    def identify(text: str = FILE, fields: dict | None = None, name: str = "MyModel"):
        (tmp_path / "my_model.py").write_text(text)
        return identity(load(f"my_model.py:{name}", fields or {}, tmp_path))

    return identify


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"""A docstring."""', "# a comment"),
        lambda text: text.replace('        """Data."""\n', ""),
        lambda text: text.replace('    """What the width is."""\n', ""),
        lambda text: text.replace("# nothing", ""),
        lambda text: text.replace('"validation_error < 0.05"', "('validation_error < 0.05')"),
        lambda text: text.replace("\n    def data", "\n\n\n    def data"),
    ],
)
def test_what_does_not_count(identify, edit) -> None:
    edited = edit(FILE)
    assert edited != FILE
    assert identify(edited) == identify()


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("Linear(3", "Linear(4"),
        lambda text: text.replace("0.05", "0.04"),
        lambda text: text.replace("width: int", "width: float"),
        lambda text: text + "\nx = 1\n",
    ],
)
def test_code_counts(identify, edit) -> None:
    assert identify(edit(FILE))["source"] != identify()["source"]


def test_fields_and_name_count(identify) -> None:
    before = identify()
    assert before == {
        "name": "MyModel",
        "fields": {"label_smoothing": 0.0, "width": 64},
        "source": before["source"],
    }
    assert identify(fields={"width": 64.0}) == before
    assert identify(fields={"width": 32})["fields"] != before["fields"]
    assert json.loads(json.dumps(before)) == before


def test_a_pinned_version_takes_the_sources_place(identify) -> None:
    pinned = FILE.replace("    width", '    version = "3"\n    width')
    found = identify(pinned)
    assert found["version"] == "3"
    assert "source" not in found
    assert identify(pinned + "\nx = 1\n") == found


def test_a_child_of_a_pinned_workload_is_hashed_with_it(identify) -> None:
    child = (
        "from workloads.digits import DigitsMLP\n"
        "class MyModel(DigitsMLP):\n"
        "    def model(self): return super().model()\n"
    )
    found = identify(child)
    assert "version" not in found
    assert found["source"] not in (identify(child + "x = 1\n")["source"], text_hash(child))
    assert identity(load(DigitsMLP))["version"] == "1"


def test_classes_of_one_file_share_its_source(identify) -> None:
    text = FILE + "\nclass Second(MyModel): ...\n"
    first, second = identify(text), identify(text, name="Second")
    assert first["source"] == second["source"]
    assert first["name"] != second["name"]


def test_no_source_is_an_error() -> None:
    scope: dict = {"__name__": "nowhere", "Classification": Classification}
    exec(
        "class Loose(Classification):\n"
        "    target = 'validation_error < 1'\n"
        "    data = model = lambda self: None\n",
        scope,
    )
    with pytest.raises(WorkloadError, match="source of workload Loose cannot be found"):
        identity(scope["Loose"]())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a = 1", "b = 'x'", "def f(): return 2", "f(3)"]), max_size=4))
def test_equal_hashes_mean_equal_code(lines) -> None:
    text = "\n".join(lines)
    commented = "\n".join(f"{line}  # {i}\n" for i, line in enumerate(lines))
    assert text_hash(textwrap.dedent(commented)) == text_hash(text)
    assert text_hash(text + "\nc = 4") != text_hash(text)
