"""What wrong input gets: one line that names the thing and its line in the file, and a hint."""

from __future__ import annotations

import pytest
import torch

from experiments.config.compile import load
from experiments.errors import ExperimentError
from tests.experiments.files import EXPERIMENT, folder
from workloads import WorkloadError


def complaint(tmp_path, text, *settings):
    """What is said of that text, without the folder's name, and the hint."""
    file = folder(tmp_path, text)
    with pytest.raises(ExperimentError) as raised:
        load(file, settings).plans()
    message = str(raised.value)
    assert "\n" not in message
    assert "\n" not in (raised.value.hint or "")
    return message.replace(f"{tmp_path}/", ""), raised.value.hint or ""


DIGITS = """\
workload: digits-mlp
grid:
  batch_size: 8..64
  optimizer: [sgd, momentum]
"""


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ("optimiser: adam", "my.yaml:5: unknown key 'optimiser'", "did you mean 'optimizer'?"),
        ("trails: 8", "my.yaml:5: unknown key 'trails'", "did you mean 'trials'?"),
        ("epochs: 10", "my.yaml:5: unknown key 'epochs'", "is its budget: "),
        ("n_trials: 8", "my.yaml:5: unknown key 'n_trials'", "trials: 64"),
        ("batch_size: 8", "my.yaml:5: unknown key 'batch_size'", "write it below grid"),
        ("trials: 0", "my.yaml:5: trials must be at least 1, not 0", ""),
        ("trials: many", "my.yaml:5: trials must be a whole number, not 'many'", ""),
        ("trials: 2.5", "my.yaml:5: trials must be a whole number, not 2.5", ""),
        ("trials: true", "my.yaml:5: trials must be a whole number, not True", ""),
        ("workers: 0", "my.yaml:5: workers must be at least 1, not 0", ""),
        ("micro_batch: 0", "my.yaml:5: micro_batch must be at least 1, not 0", ""),
        ("keep: 0", "my.yaml:5: keep must be at least 1, not 0", "or off"),
        ("keep: some", "my.yaml:5: keep must be a whole number, not 'some'", "or off"),
        ("stop_at_target: no", "my.yaml:5: stop_at_target must be true or false, not 'no'", ""),
        ("evaluation_ratio: 1", "my.yaml:5: evaluation_ratio must be over 1, not 1", ""),
        ("evaluation_ratio: .inf", "evaluation_ratio must be a finite number, not inf", ""),
        (
            "engine: fast",
            "my.yaml:5: engine 'fast' is not one of 'auto', 'module' or 'stacked'",
            "",
        ),
        ("precision: half", "my.yaml:5: precision 'half' is not one of 'float32'", ""),
        ("name: a/b", "my.yaml:5: name 'a/b' cannot be a name", "names a folder"),
        ("search: 3", "my.yaml:5: search must be a mapping of keys to values, not 3", ""),
        ("schedule: linaer", "my.yaml:5: unknown schedule 'linaer'", "'linear'"),
        ("budget: 2000", "my.yaml:5: budget 2000 has no unit", "50 epochs + 2000 steps"),
        (
            "budget: 5 examples",
            "my.yaml:5: budget 5 examples is less than one step at batch size 8",
            "",
        ),
        ("target: accuracy", "my.yaml:5: target 'accuracy' is not METRIC < VALUE", "for example"),
        ("target: error < 0.1", "my.yaml:5: target 'error < 0.1' of", "validation_error"),
        ("target: validation_error > 0.05", "my.yaml:5: target", "better when lower"),
        ("target: validation_accuracy < 0.9", "my.yaml:5: target", "better when higher"),
        (
            "target: validation_eror < 0.05",
            "my.yaml:5: target validation_eror: workload digits-mlp has no metric 'eror'",
            "did you mean 'validation_error'?",
        ),
        ("target: test_error < 0.05", "has no split 'test'", "train, validation"),
        (
            "target:\n  - validation_error < 0.1\n  - train_error < 0.1",
            "my.yaml:7: targets of two metrics: validation_error and train_error",
            "training stops at the hardest",
        ),
        (
            "target: [validation_error < 0.1, validation_error < 0.10]",
            "my.yaml:5: target validation_error < 0.1 is given twice",
            "keep one",
        ),
        (
            "files: [gone.py]",
            "my.yaml:5: files: no file 'gone.py'",
            "relative to the experiment file",
        ),
        ("trials: 8\ntrials: 9", "my.yaml:6: key 'trials' is given twice", "keep one"),
        ("a: b: c", "my.yaml:5: not YAML: mapping values are not allowed here", "quote"),
    ],
)
def test_top_level(tmp_path, more, message, hint):
    said, hinted = complaint(tmp_path, DIGITS + more)
    assert message in said
    assert said.startswith("my.yaml:")
    assert hint in hinted


TAGGED = {
    "trials: !!python/object/apply:os.system [touch ran]": "!!python/object/apply:os.system",
    "trials: !!python/object/new:os.system [touch ran]": "!!python/object/new:os.system",
    "trials: !!python/name:os.system": "!!python/name:os.system",
    "trials: !!python/module:this": "!!python/module:this",
    "trials: !!python/tuple [8]": "!!python/tuple",
    "trials: !!int '8'": "!!int",
    "trials: !!binary OA==": "!!binary",
    "trials: !!set {8}": "!!set",
    "trials: !mine 8": "!mine",
    "trials: !<tag:example.org,2000:x> 8": "tag:example.org,2000:x",
    "!!str trials: 8": "!!str",
    "trials: !%0a%1b[31m 8": r"!\n\x1b[31m",
    f"trials: !{'x' * 5000} 8": f"!{'x' * 59}…",
}


@pytest.mark.parametrize(("line", "tag"), TAGGED.items(), ids=lambda text: text[:40])
def test_a_tag_of_yaml_is_refused(tmp_path, monkeypatch, line, tag):
    monkeypatch.chdir(tmp_path)
    said, hint = complaint(tmp_path, DIGITS + line)
    assert said == f"my.yaml:5: {tag} is a tag of YAML, and an experiment is plain data"
    assert "remove the tag" in hint
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["!!map\n" + DIGITS, "%TAG ! tag:example.org:\n--- !x {}"])
def test_a_tag_of_the_whole_file_is_refused(tmp_path, text):
    assert "is a tag of YAML" in complaint(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "batch_size: 8..4096",
            "batch size 2048 is over the training set (1,297 examples)",
            "`full`",
        ),
        ("batch_size: 2000", "batch size 2000 is over the training set", "`full`"),
        ("batch_size: 0", "batch size 0 is below 1", ""),
        ("batch_size: [8, -4]", "batch size -4 is below 1", ""),
        ("batch_size: 0..8", "batch size 0 is below 1", "start at 1"),
        ("batch_size: 64..8", "the range 64..8 is reversed", "8..64"),
        ("batch_size: 8.5", "batch size 8.5 is not a whole number", ""),
        ("batch_size: all", "'all' is not a batch size", "full"),
        ("batch_size: [8, [9]]", "[9] is not a batch size", ""),
        ("batch_size: [8, 8..32]", "batch size 8 is given twice", "keep one"),
        ("batch_size: [1297, full]", "batch size 1297 is given twice: full is 1297", "keep one"),
        ("batch_size: []", "no batch sizes", "8..4096"),
        ("optimizer: [sgd, adm]", "unknown optimizer 'adm'", "'adam'"),
        ("optimizer: [sgd, 3]", "optimizer 3 is not a name", ""),
        ("optimizer: [sgd, sgd]", "grid.optimizer: 'sgd' is given twice", "keep one"),
        ("optimizer: []", "grid.optimizer is an empty list", "leave the key out"),
        ("optimizer: gone.py:Opt", "no file 'gone.py'", "relative to its experiment file"),
        ("optimizer: my_opt.py:Sing", "has no class 'Sing'", "'Sign'"),
        ("optimizr: sgd", "unknown key 'optimizr' in grid", "'optimizer'"),
        ("widht: [4, 8]", "unknown key 'widht' in grid", "known: "),
        ("label_smoothing: [0, 2]", "field 'label_smoothing'", ""),
        ("label_smoothing: [0, 0.0]", "0.0 is given twice", "keep one"),
        ("label_smoothing: {linear: [0, 1]}", "is not a value", "search:"),
        ("label_smoothing: [.nan]", "grid.label_smoothing: nan is not a value", ""),
        ("schedule: [constant, cosin]", "unknown schedule 'cosin'", "'cosine'"),
        ("precision: [float32, float8]", "unknown precision 'float8'", "'float64'"),
        ("ghost_batch: [16]", "ghost_batch 16 does not divide batch size 8", "leave that"),
        ("ghost_batch: [0]", "ghost_batch 0 is not a whole number of at least 1", ""),
    ],
)
def test_grid(tmp_path, line, message, hint):
    key = line.partition(":")[0]
    kept = [kept for kept in DIGITS.splitlines() if not kept.strip().startswith(f"{key}:")]
    said, hinted = complaint(tmp_path, "\n".join([*kept, f"  {line}"]))
    assert message in said
    assert said.startswith(f"my.yaml:{len(kept) + 1}: ")
    assert hint in hinted


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("learning_rate: {lgo: [1e-4, 1]}", "learning_rate: unknown scale 'lgo'", "'log'"),
        ("momentum: {revers_log: [0.5, 0.9]}", "unknown scale 'revers_log'", "'reverse_log'"),
        ("learning_rate: {log: [0, 1]}", "has no logarithm", "start above 0"),
        ("learning_rate: {log: [1, 1e-4]}", "is reversed", "the lower first"),
        ("learning_rate: {log: [1, 1]}", "is empty", "fixed value"),
        ("learning_rate: {log: 1}", "1 is not a list", "{log: [1e-4, 10]}"),
        ("learning_rate: {log: [1, 2], linear: [1, 2]}", "one scale, not 2", "linear"),
        ("learning_rate: [0.1, 1]", "neither a value nor a range", "discrete"),
        ("learning_rate: .inf", "is not a finite number", ""),
        ("learning_rate: fast", "'fast' is not a number", ""),
        ("learning_rate: -1", "is outside [0, inf)", ""),
        ("momentum: {linear: [0.5, 1]}", "momentum: 1.0 is outside [0, 1)", ""),
        ("momentum: {reverse_log: [0.5, 1]}", "uniform in log(1 - x)", "0.999"),
        ("warmup: 3", "warmup: 3 is outside [0, 1]", "warmup_steps is in steps"),
        ("learning_rat: 0.1", "search.learning_rat: neither an optimizer's", "'learning_rate'"),
        ("beta1: 0.9", "search.beta1: nothing in the grid has it, only adam", "search: {adam: "),
        ("decay: 0.9", "search.decay: nothing in the grid has it, only cosine", "cosine"),
        ("adm: {learning_rate: 0.1}", "search.adm: no optimizer or schedule of that", "'adam'"),
        ("adam: {momentum: 0.9}", "adam has no argument 'momentum'", "known: "),
        ("sgd: {learning_rat: 1}", "sgd has no argument 'learning_rat'", "'learning_rate'"),
        ("sgd: {learning_rate: {lg: [1, 2]}}", "sgd.learning_rate: unknown scale", "'log'"),
        ("sgd: {learning_rate: [1, 2]}", "sgd.learning_rate: [1, 2] is neither", "discrete"),
        ("constant: {learning_rate: 1}", "constant has no argument 'learning_rate'", ""),
        ("label_smoothing: {linear: [0, 1]}", "field 'label_smoothing'", ""),
        ("trust_coefficient: 1", "nothing in the grid has it, only lars", "search: {lars: "),
    ],
)
def test_search(tmp_path, line, message, hint):
    said, hinted = complaint(tmp_path, f"{DIGITS}search:\n  {line}\n")
    assert message in said
    assert said.startswith("my.yaml:6: ")
    assert hint in hinted


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "my.yaml: no key 'workload'", "workload: digits-mlp"),
        ("- a\n- b", "my.yaml: not a mapping", "begin with"),
        ("workload: digits-mlp", "no key 'grid'", "batch_size"),
        ("workload: digits-mlp\ngrid: {}", "my.yaml:2: grid has no optimizer", "optimizer:"),
        ("workload: digits-mlp\ngrid: {optimizer: sgd}", "grid has no batch_size", "8..4096"),
        ("workload: [a]\ngrid: {}", "my.yaml:1: workload must be text, not ['a']", ""),
        ("workload: digit-mlp\ngrid: {optimizer: sgd}", "my.yaml:1: no workload is", "digits-mlp"),
        ("workload: gone.py:A\ngrid: {optimizer: sgd}", "my.yaml:1: no file 'gone.py'", ""),
        ("workload: my_model.py:A\ngrid: {optimizer: sgd}", "has no class 'A'", "MyModel"),
        ("a: &a [*a]", "my.yaml:1: an alias that contains itself", ""),
        ("? [a]\n: b", "my.yaml:1: a key must be text", ""),
        ("a: [", "not YAML", ""),
        ("a: \x07", "not YAML", ""),
    ],
)
def test_whole_files(tmp_path, text, message, hint):
    said, hinted = complaint(tmp_path, text)
    assert message in said
    assert hint in hinted


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("  schedule: [constant]\nschedule: linear", "my.yaml:6: schedule is in the grid and"),
        ("search: {width: {integer: [2, 9]}}", "my.yaml:6: width is in the grid and in search"),
        ("ghost_batch: 4\nmicro_batch: 6", "my.yaml:6: ghost_batch 4 does not divide micro_batch"),
        ("  ghost_batch: [4, 8]\nmicro_batch: 4", "my.yaml:6: ghost_batch 8 does not divide micro"),
        ("target: validation_score < 1", "my.yaml:6: target validation_score: workload MyModel"),
    ],
)
def test_keys_that_contradict_each_other(tmp_path, more, message):
    assert message in complaint(tmp_path, f"{EXPERIMENT}{more}\n")[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "search: {decay: 0.5, decay_examples: 100}",
            "my.yaml:6: search.decay and decay_examples are one length of schedule linear",
        ),
        (
            "search: {linear: {warmup_steps: 5, warmup: {linear: [0, 0.1]}}}",
            "my.yaml:6: search.linear.warmup_steps and warmup are one length of schedule linear",
        ),
        (
            "method: points\npoints: [{learning_rate: 1, momentum: 0.9, decay: 1, decay_steps: 2}]",
            "my.yaml:7: points[0].decay and decay_steps are one length of schedule linear",
        ),
    ],
)
def test_two_forms_of_one_length(tmp_path, more, message):
    said, hint = complaint(tmp_path, DIGITS + f"schedule: linear\n{more}\n")
    assert said == message
    assert hint == "keep one of the two"
    other = "search: {decay_examples: 100, linear: {decay: 0.5}}"  # the section goes before
    file = folder(tmp_path, DIGITS + f"schedule: linear\n{other}\n")
    assert {plan.fixed["decay"] for plan in load(file).plans()} == {0.5}


def test_places_of_what_the_command_line_says(tmp_path):
    said, _ = complaint(tmp_path, DIGITS, "grid.batch_size=0")
    assert said == "--set grid.batch_size=0: grid.batch_size: batch size 0 is below 1"
    said, hint = complaint(tmp_path, DIGITS, "trails=8")
    assert (said, hint) == ("--set trails=8: unknown key 'trails'", "did you mean 'trials'?")
    said, _ = complaint(tmp_path, DIGITS, "search.sgd.learning_rate={log: [1, 0]}")
    assert said.startswith("--set search.sgd.learning_rate={log: [1, 0]}: search.sgd.learning_rate")
    assert complaint(tmp_path, DIGITS, "trials")[0] == "--set trials: not KEY=VALUE"
    assert (
        "trials is a value and has no keys"
        in complaint(tmp_path, f"{DIGITS}trials: 8", "trials.a=1")[0]
    )
    assert "not YAML" in complaint(tmp_path, DIGITS, "trials=[")[0]


def test_a_metric_that_points_another_way_than_the_workloads_own(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    model.write_text(
        model.read_text()
        .replace('"accuracy"', '"score"')
        .replace("validation_error < 0.25", "validation_score > 0.75")
    )
    load(file).plans()
    with pytest.raises(ExperimentError, match="another direction than the workload"):
        load(file, ["target=validation_score < 0.75"]).plans()


def test_a_field_with_the_name_of_an_argument(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    model.write_text(model.read_text().replace("kind: str", "momentum: str"))
    with pytest.raises(ExperimentError, match="'momentum' of the workload has the name of an arg"):
        load(file)


def test_a_default_space_of_ones_own_that_cannot_be(tmp_path):
    file = folder(tmp_path)
    optimizer = tmp_path / "my_opt.py"
    optimizer.write_text(optimizer.read_text().replace("[1e-4, 1]", "[0, 1]"))
    with pytest.raises(ExperimentError, match=r"optimizer my_opt\.py:Sign: space of learning_rate"):
        load(file)


def test_a_data_set_that_is_missing_passes_on(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    gone = "from workloads import WorkloadError\n        raise WorkloadError('no data set')\n"
    model.write_text(model.read_text().replace("x = torch.", f"{gone}        x = torch."))
    experiment = load(file)  # names and ranges are checked without the data
    with pytest.raises(WorkloadError, match="no data set"):
        experiment.plans()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ExperimentError, match="no experiment file") as raised:
        load(tmp_path / "gone.yaml")
    assert "digits" in (raised.value.hint or "")
    with pytest.raises(ExperimentError, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ExperimentError, match="cannot be read: not UTF-8"):
        load(tmp_path / "latin.yaml")
    with pytest.raises(ExperimentError, match="no experiment is called 'digit'") as raised:
        load("digit")
    assert "did you mean 'digits'?" in (raised.value.hint or "")


def test_data_is_read_once_for_each_value_of_its_fields(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    log = tmp_path / "log"
    count = f"with open({str(log)!r}, 'a') as log: log.write('x')\n        x = torch."
    text = model.read_text().replace("x = torch.", count)
    model.write_text(text.replace("arange(160.0)", "arange(160.0, dtype=torch.float64)"))
    load(file, ["target=train_accuracy > 0.5"]).plans()
    assert log.read_text() == "xx"


def test_metrics_that_are_none(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    model.write_text(model.read_text().replace("return {**known, ", "return {'mean': 1.0, "))
    with pytest.raises(WorkloadError, match="returned one number"):
        load(file).plans()


def test_the_model_whose_metrics_are_asked_is_always_the_same(tmp_path):
    """Else whether a sweep of a model that fails for some weights starts would be luck."""
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    log = tmp_path / "log"
    draw = f"with open({str(log)!r}, 'a') as log: log.write(f'{{torch.rand(())}} ')\n        "
    model.write_text(model.read_text().replace("return nn.Seq", draw + "return nn.Seq"))
    for seed in (0, 1):
        torch.manual_seed(seed)
        load(file).plans()
    assert len(log.read_text().split()) > 1
    assert len(set(log.read_text().split())) == 1
