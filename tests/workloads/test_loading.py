"""Workloads by name, by class and out of a file."""

from __future__ import annotations

import pickle
import sys
import textwrap

import pytest

import workloads
from workloads import Classification, WorkloadError, load, names
from workloads.registry import REGISTRY, get, packaged_name, read

FILE = """
    import torch
    from workloads import Classification

    class Net(torch.nn.Linear): ...

    class MyModel(Classification):
        target = "validation_error < 0.05"
        width: int = 64

        def data(self):
            x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
            return {"train": (x, y), "validation": (x, y)}
        def model(self): return Net(3, self.width)
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str = FILE, name: str = "my_model.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path

    return write


def test_the_packaged_workloads_are_listed_in_their_order() -> None:
    assert list(names()) == [
        *("digits-mlp", "digits-softmax", "digits-fc", "mnist8-fc", "fashion-mnist8-fc"),
        *("mnist-fc", "mnist-simple-cnn", "fashion-mnist-simple-cnn", "cifar10-resnet8"),
        *("cifar100-resnet8", "cifar10-resnet18", "cifar100-resnet18"),
        *("cifar10-vgg11", "cifar100-vgg11"),
        *("imagenet-resnet50", "imagenet-resnet18", "imagenet-vgg11"),
        *("multilabel-mlp", "quadratic", "teacher", "markov"),
        *("lm-transformer", "lm-lstm"),
    ]


def test_a_new_file_is_a_new_workload_and_is_not_imported(write) -> None:
    """Nothing but the file itself is edited: its constants are read from its source."""
    folder = write('raise ImportError\n\nPACKAGED = {"new": ("New", "one line")}\nPLACE = 0\n')
    write('TEXT = \'PACKAGED = {"none": ("None", "text")}\'\n', "text.py")
    write('PACKAGED = {"late": ("Late", "without a place")}\n', "a.py")
    assert read(folder) == {
        "new": ("workloads.my_model", "New", "one line"),
        "late": ("workloads.a", "Late", "without a place"),
    }


def test_a_users_class_with_a_packaged_name_is_the_users(write) -> None:
    folder = write(FILE.replace("MyModel", "quadratic"))
    kind = type(load("my_model.py", base=folder))
    assert kind.__name__ == "quadratic"
    assert packaged_name(kind) is None


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_names_lead_to_workloads_and_back(name) -> None:
    workload = load(name)
    assert workload.name == name
    assert get(name) is type(workload)
    assert type(workload).__dict__["version"], "a packaged workload pins its own version"
    assert names()[name]


def test_a_name_that_is_unknown_gets_its_neighbour() -> None:
    with pytest.raises(WorkloadError, match="no workload is called 'digit-mlp'") as caught:
        load("digit-mlp")
    assert caught.value.hint == "did you mean 'digits-mlp'?"
    with pytest.raises(AttributeError, match="lod"):
        workloads.lod  # noqa: B018


def test_a_file_of_ones_own(write) -> None:
    folder = write()
    own = load("my_model.py:MyModel", {"width": 8}, folder)
    assert (own.name, own.fields["width"]) == ("MyModel", 8)
    assert own.model().out_features == 8
    assert load("my_model.py", base=folder).fields["width"] == 64
    assert type(load(f"{folder}/my_model.py:MyModel")) is type(own)
    assert pickle.loads(pickle.dumps(own)) == own
    assert type(pickle.loads(pickle.dumps(own.model()))).__name__ == "Net"


def test_an_edited_file_is_read_anew(write) -> None:
    folder = write()
    before = load("my_model.py:MyModel", base=folder)
    write(FILE.replace("64", "32"))
    after = load("my_model.py:MyModel", base=folder)
    assert (before.fields["width"], after.fields["width"]) == (64, 32)
    assert pickle.loads(pickle.dumps(before)) == before


def test_a_file_finds_its_siblings_and_hides_nothing(write, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = write("SIZE = 7\n", "a_sibling_of_mine.py")
    write("raise RuntimeError\n", "json.py")
    write("from a_sibling_of_mine import SIZE\nimport json\n" + textwrap.dedent(FILE))
    assert load("my_model.py:MyModel", base=folder)
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("my_modle.py:MyModel", "no file 'my_modle.py' in", "did you mean 'my_model.py'?"),
        ("my_model.py:MyModle", "has no class 'MyModle'", "did you mean 'MyModel'?"),
        ("my_model.py:Net", "'Net' in my_model.py is not a workload", "derive it"),
        ("my_model.py:torch", "'torch' in my_model.py is not a workload", "derive it"),
    ],
)
def test_a_wrong_place_is_named(write, spec, message, hint) -> None:
    with pytest.raises(WorkloadError) as caught:
        load(spec, base=write())
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_several_workloads_need_a_class(write) -> None:
    folder = write(textwrap.dedent(FILE) + "\nclass Second(MyModel): ...\n")
    with pytest.raises(WorkloadError, match=r"my_model.py holds 2 workloads"):
        load("my_model.py", base=folder)


@pytest.mark.parametrize("method", ["data", "model"])
def test_a_missing_method_is_named(write, method) -> None:
    folder = write(FILE.replace(f"def {method}(", "def other("))
    with pytest.raises(WorkloadError, match=f"workload MyModel has no method '{method}'"):
        load("my_model.py:MyModel", base=folder)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("validation_error = 0.05", "is not METRIC < VALUE"),
        ("validation_error < low", "is not METRIC < VALUE"),
        ("error < 0.05", "names no split"),
        ("validation_error > 0.05", "has the wrong direction"),
        ("validation_accuracy < 0.9", "has the wrong direction"),
    ],
)
def test_a_target_that_cannot_be_meant(write, target, message) -> None:
    folder = write(FILE.replace("validation_error < 0.05", target))
    with pytest.raises(WorkloadError, match=message) as caught:
        load("my_model.py:MyModel", base=folder)
    assert "workload MyModel" in str(caught.value)


def test_no_target_is_an_error() -> None:
    class Aimless(Classification):
        def data(self): ...
        def model(self): ...

    with pytest.raises(WorkloadError, match="Aimless states no target"):
        load(Aimless)
    with pytest.raises(WorkloadError, match="dict is not a workload"):
        load(dict)  # type: ignore[arg-type]


def test_what_the_users_file_raises_passes_unchanged(write) -> None:
    folder = write("1 / 0\nMyModel = None\n")
    with pytest.raises(ZeroDivisionError):
        load("my_model.py:MyModel", base=folder)
    assert not [m for m in sys.modules.values() if str(folder) in str(getattr(m, "__file__", ""))]
    write()
    assert load("my_model.py:MyModel", base=folder)


SCRIPT = """
    import argparse
    from pathlib import Path
    import torch

    class Net(torch.nn.Linear): ...

    Path(__file__).with_name("ran").touch()
    argparse.ArgumentParser().parse_args(["--unknown"])
"""


@pytest.mark.parametrize("spec", ["train.py", "train.py:MyModel"])
def test_a_script_that_imports_nothing_of_ours_is_not_run(write, spec) -> None:
    folder = write(SCRIPT, "train.py")
    with pytest.raises(WorkloadError, match=r"train.py defines no workload: .* was not run"):
        load(spec, base=folder)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "head",
    [
        "from batchscale import Classification as Base",
        "import batchscale as bs\nBase = bs.Classification",
        "from base import Base",
        "import workloads\nBase = workloads.Classification",
    ],
)
def test_a_workload_derives_from_ours_in_any_way(write, head) -> None:
    write("from batchscale import Classification\nclass Base(Classification): ...\n", "base.py")
    text = (
        textwrap.dedent(FILE)
        .replace("(Classification)", "(Base)")
        .replace("from workloads import Classification", head)
    )
    folder = write(text)
    assert type(load("my_model.py", base=folder)).__name__ == "MyModel"


def test_a_class_that_is_made_in_another_way_is_loaded_by_its_name(write) -> None:
    folder = write(textwrap.dedent(FILE) + "globals()['Other'] = MyModel\n")
    assert type(load("my_model.py:Other", base=folder)).__name__ == "MyModel"
