"""What wrong input gets: one line that names the thing and the place, a hint, the exit status, and
nothing on disk harmed. Experiment files and workloads here; sources in test_bad_sources.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batchscale.conftest import Answer, Command
from tests.user_models import LINEAR

Watch = Callable[[Path], Callable[[], bool]]

GOOD = """\
workload: digits-softmax
grid:
  batch_size: 32..128
  optimizer: [sgd]
trials: 2
budget: 30 steps
"""


def sweep(command: Command, here: Path, text: str, *options: str) -> Answer:
    (here / "mine.yaml").write_text(text)
    return command("sweep", "mine.yaml", "--address", "none", *options)


def clear(answer: Answer, *parts: str, hint: str | None = None) -> None:
    """One line that says all of ``parts``, and one hint."""
    lines = answer.complaint
    assert answer.status == 1
    assert not answer.out
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]
    if hint is None:
        assert len(lines) <= 2
    else:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]
        assert len(lines) == 2


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("old", "new", "parts", "hint"),
    [
        ("trials: 2", "trails: 2", ["mine.yaml:5", "unknown key 'trails'"], "trials"),
        ("32..128", "[32, 1298]", ["mine.yaml:3", "1298", "1,297 examples"], "full"),
        ("digits-softmax", "digits-sofmax", ["mine.yaml:1", "'digits-sofmax'"], "digits-softmax"),
    ],
)
def test_an_experiment_file(
    command: Command,
    here: Path,
    old: str,
    new: str,
    parts: list[str],
    hint: str,
    options: tuple[str, ...],
) -> None:
    """All that is refused in one is in ``tests/experiments/wrong_files``."""
    clear(sweep(command, here, GOOD.replace(old, new), *options), *parts, hint=hint)
    assert sorted(path.name for path in here.iterdir()) == ["mine.yaml"]


def test_an_experiment_that_is_not_there(command: Command, here: Path) -> None:
    clear(command("sweep", "digit"), "'digit'", hint="digits")
    clear(command("sweep", "mine.yaml"), "'mine.yaml'", hint="batchscale list experiments")
    assert not list(here.iterdir())


def test_settings_and_lengths_of_time(command: Command, here: Path) -> None:
    clear(sweep(command, here, GOOD, "--set", "trails=8"), "--set trails=8", hint="trials")
    clear(sweep(command, here, GOOD, "--set", "trials"), "KEY=VALUE", hint="--set trials=8")
    clear(sweep(command, here, GOOD, "--for", "soon"), "soon", hint="2h")
    clear(sweep(command, here, GOOD, "--snapshot-every", "0"), "--snapshot-every 0", hint="45s")
    clear(sweep(command, here, GOOD, "--keep-old", "--retrain"), "not both", hint=None)


def test_names_of_a_trial(command: Command, here: Path) -> None:
    given = ("--batch-size", "64", "--param", "learning_rate=0.1")
    clear(command("trial", "digits-mpl", *given), "'digits-mpl'", hint="digits-mlp")
    clear(command("trial", "mine.py:A", *given), "mine.py", hint="")
    clear(command("trial", "digits-mlp", *given, "--optimizer", "adm"), "'adm'", hint="adam")
    clear(command("trial", "digits-mlp", *given, "--engine", "stack"), "'stack'", hint="stacked")
    clear(command("trial", "digits-mlp", *given, "--device", "gpu9"), "'gpu9'", hint="cuda")
    clear(command("trial", "digits-mlp", *given, "--param", "label=3"), "'label'", hint="label_")
    for key, flag in (("technique", "--technique"), ("batch_size", "--batch-size")):
        clear(command("trial", "digits-mlp", *given, "--param", f"{key}=x"), f"{key}=x", hint=flag)
    clear(command("trial", "digits-mlp", *given, "--param", "trials=3"), "trials", hint="sweep")
    clear(command("trial", "digits-mlp", *given, "--save", "a.pt"), "a.pt", hint=None)
    clear(command("trial", "digits-mlp", *given, "--save", "no/a.safetensors"), "no folder no")
    bare = ("--batch-size", "64", "--optimizer", "momentum")
    clear(command("trial", "digits-mlp", *bare), "momentum", hint="--param momentum=")
    clear(command("trial", "digits-mlp"), "--batch-size", hint="batchscale trial digits-mlp")
    bad = ("--batch-size", "1298", "--param", "learning_rate=0.1")
    clear(command("trial", "digits-mlp", *bad), "1298", "1,297", hint="full")
    assert not list(here.iterdir())


def test_an_unknown_list_and_check(command: Command) -> None:
    clear(command("list", "optimiser"), "'optimiser'", hint="optimizers")
    clear(command("check", "digits-mpl"), "'digits-mpl'", hint="digits-mlp")


def test_new_overwrites_nothing(command: Command, here: Path, untouched: Watch) -> None:
    (here / "mine.py").write_text("precious = 1\n")
    same = untouched(here)
    clear(command("new", "mine.py"), "mine.py exists already", hint="another name")
    clear(command("new", "mine.txt"), "mine.txt", hint="mine.py")
    clear(command("new", "no/mine.py"), "no folder no")
    assert same()


def test_a_missing_data_set(command: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHSCALE_DATA", str(here / "data"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr("urllib.request._opener", None)  # one that knows the proxies; none later
    answer = sweep(command, here, GOOD.replace("digits-softmax", "mnist-fc"))
    assert answer.status == 1
    assert "MNIST" in answer.complaint[0]
    assert str(here / "data") in answer.err
    assert answer.complaint[1].startswith("hint: ")
    assert not (here / "results").exists()


WORKLOAD = f"""\
{LINEAR}
    seen = [0]

    def loss(self, output, batch):
        loss = torch.nn.functional.cross_entropy(output, batch[1], reduction="none")
        return loss
"""


def own(here: Path, old: str = "", new: str = "") -> str:
    """The experiment of a workload file with ``old`` replaced."""
    (here / "mine.py").write_text(WORKLOAD.replace(old, new) if old else WORKLOAD)
    return GOOD.replace("digits-softmax", "mine.py:Mine").replace("32..128", "[16, 32]")


@pytest.mark.parametrize(
    ("new", "parts"),
    [
        ("return loss.mean()", ["one number (a mean?)", 'reduction="none"', "Mine"]),
        ("return loss[:, None]", ["loss", "Mine", "shape"]),
        ("return loss[:3]", ["loss", "Mine", "shape"]),
    ],
)
def test_a_loss_of_the_wrong_shape(
    command: Command, here: Path, new: str, parts: list[str]
) -> None:
    text = own(here, "return loss\n", f"{new}\n")
    for answer in (sweep(command, here, text), command("check", "mine.py:Mine")):
        assert answer.status == 1
        error, *hint = answer.complaint
        assert error.startswith("error: ")
        assert len(hint) <= 1
        assert all(line.startswith("hint: ") for line in hint)
        assert all(part in answer.err for part in parts)
        assert "Traceback" not in answer.err


RAISES = """\
        Mine.seen[0] += 1
        if Mine.seen[0] >= 7:
            raise ValueError("the seventh")
        return loss
"""


def test_a_workload_that_raises_at_its_seventh_step(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback from the user's first frame on, once, and how to meet it again."""
    text = own(here, "        return loss\n", RAISES) + "engine: module\n"
    answer = sweep(command, here, text)
    assert answer.status == 1
    assert answer.err.count("Traceback (most recent call last)") == 1
    assert "mine.py" in answer.err
    assert "module.py" not in answer.err
    assert "error: ValueError: the seventh" in answer.err
    reproduce = next(line for line in answer.err.splitlines() if "batchscale trial --from" in line)
    again = reproduce.split("batchscale ")[1].split()
    answer = command(*again)
    assert answer.status == 1
    assert "ValueError: the seventh" in answer.err
    assert "mine.py" in answer.err
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    clear(command(*again), "'mine.py'", hint="in the folder of the experiment's file")


def test_a_trial_that_raises_shows_the_users_frames(command: Command, here: Path) -> None:
    own(here, "        return loss\n", RAISES)
    given = ("trial", "mine.py:Mine", "--batch-size", "16", "--param", "learning_rate=0.1")
    answer = command(*given)
    assert answer.status == 1
    assert answer.err.count("Traceback (most recent call last)") == 1
    assert "mine.py" in answer.err
    assert "training.py" not in answer.err
    assert "training.py" in command("--debug", *given).err


def test_a_file_that_does_not_parse(command: Command, here: Path) -> None:
    (here / "mine.py").write_text("class Mine(:\n")
    answer = command("check", "mine.py:Mine")
    assert answer.status == 1
    assert "mine.py" in answer.err
    assert "line 1" in answer.err
    assert "SyntaxError" in answer.err
    assert "loading.py" not in answer.err


def test_a_file_that_would_hide_a_package(command: Command, here: Path) -> None:
    own(here)
    (here / "mine.py").rename(here / "results.py")
    text = GOOD.replace("digits-softmax", "results.py:Mine").replace("32..128", "[16, 32]")
    (here / "mine.yaml").write_text(text)
    answer = command("sweep", "mine.yaml", "--address", "127.0.0.1:1")
    assert answer.status == 1
    assert "results.py" in answer.err
    assert "rename" in answer.err


@pytest.mark.parametrize(
    ("address", "parts", "hint"),
    [
        ("127.0.0.1:1", ["127.0.0.1:1"], ""),
        ("ray://127.0.0.1:10001", ["ray://"], "ray job submit"),
        ("nonsense", ["nonsense"], "HOST:PORT"),
        ("127.0.0.1:99999", ["127.0.0.1:99999"], "HOST:PORT"),
    ],
)
def test_an_address_where_nothing_answers(
    command: Command, here: Path, address: str, parts: list[str], hint: str
) -> None:
    (here / "mine.yaml").write_text(GOOD)
    clear(command("sweep", "mine.yaml", "--address", address), *parts, hint=hint)


@pytest.mark.slow
@pytest.mark.ray
def test_a_demand_that_the_cluster_can_never_meet(
    command: Command, here: Path, ray_address: str
) -> None:
    (here / "mine.yaml").write_text(GOOD)
    options = ("--set", "workers=64", "--address", ray_address)
    answer = command("sweep", "mine.yaml", *options)
    clear(answer, "64 workers", "2 CPUs", hint="fewer workers")
