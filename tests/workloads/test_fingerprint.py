"""Identity: code, fields and name count; comments, docstrings and layout do not."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Classification, WorkloadError, identity, load
from workloads.digits import DigitsMLP
from workloads.user_code.fingerprint import text_hash

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


def test_a_file_without_local_imports_has_the_hash_that_it_always_had(identify, tmp_path) -> None:
    """Identities of results that are recorded must not change."""
    (tmp_path / "beside.py").write_text("x = 1\n")
    before = "4017707482966e3844b89d4f361bf61d21ba649276fdd849bda03c363a0f1edc"
    assert identify()["source"] == text_hash(FILE) == before


def test_the_code_of_local_modules_counts_and_their_comments_do_not(identify, tmp_path) -> None:
    def of(layers: str, sizes: str = "SIZE = 3\n") -> str:
        (tmp_path / "layers.py").write_text(layers)
        (tmp_path / "sizes.py").write_text(sizes)
        return identify("import layers\n" + FILE)["source"]

    layers = "from sizes import SIZE\ndef net(): return SIZE\n"
    before = of(layers)
    assert of('"""The layers."""\n' + layers + "# a comment\n") == before
    others = {of(layers + "x = 1\n"), of(layers, "SIZE = 4\n")}
    assert len(others | {before, text_hash("import layers\n" + FILE)}) == 4
    assert of(layers) == before


def test_a_local_module_that_is_no_python_counts_as_it_stands(identify, tmp_path) -> None:
    text = "try:\n    import layers\nexcept SyntaxError:\n    pass\n" + FILE
    sources = set()
    for broken in ("x = (\n", "x = [\n"):
        (tmp_path / "layers.py").write_text(broken)
        sources.add(identify(text)["source"])
    assert len(sources | {text_hash(text)}) == 3


def test_where_a_folder_stands_does_not_count(tmp_path) -> None:
    sources = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "layers.py").write_text("x = 1\n")
        (tmp_path / name / "my_model.py").write_text("import layers\n" + FILE)
        sources.add(identity(load("my_model.py:MyModel", {}, tmp_path / name))["source"])
    assert len(sources) == 1


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
