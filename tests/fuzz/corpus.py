"""Input that once ended in a traceback, or never: each with a name that says what it is."""

from __future__ import annotations

GOOD = """\
workload: digits-softmax
grid: {batch_size: 8..64, optimizer: [sgd]}
trials: 4
budget: 20 steps
"""
_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
_FIELDS = "".join(f"  f{i}: [{', '.join(map(str, range(30)))}]\n" for i in range(8))
_MANY = ", ".join(f"validation_error < {i}" for i in range(3000))

EXPERIMENTS = {
    "lists nested three thousand deep": f"a: {'[' * 3000}{']' * 3000}",
    "mappings nested three hundred deep": f"{GOOD}search: {'{a: ' * 300}1{'}' * 300}",
    "lists nested sixty deep": f"{GOOD}points: {'[' * 60}{']' * 60}",
    "an alias bomb": GOOD + _BOMB,
    "a chain of aliases": GOOD
    + "a0: &a0 x\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 300)),
    "an alias that holds itself": f"{GOOD}search: &s {{sgd: *s}}",
    "an integer of 5,000 digits": f"{GOOD}seed: {'9' * 5000}",
    "an integer of 5,000 digits in a list": f"{GOOD}points: [{{learning_rate: {'9' * 5000}}}]",
    "a hexadecimal number of 3,000 digits": f"{GOOD}seed: 0x{'f' * 3000}",
    "an integer of 400 digits": f"{GOOD}search: {{learning_rate: {'9' * 400}}}",
    "a seed beyond 64 bits": f"{GOOD}seed: 9223372036854775808",
    "a seed of 1e300": f"{GOOD}seed: 1e300",
    "a range of huge integers": f"{GOOD}search: {{learning_rate: {{log: [1, {'9' * 350}]}}}}",
    "a range wider than floats": f"{GOOD}search: {{learning_rate: {{linear: [0, 1.7e308]}}, "
    "momentum: {linear: [-1.7e308, 1.7e308]}}",
    "a range of whole numbers beyond 64 bits": GOOD
    + "search: {warmup_steps: {integer: [1, 1e30]}}",
    "a share that is a huge integer": f"{GOOD}refine: {'9' * 350}",
    "a budget with an exponent of nine digits": GOOD.replace("20 steps", "1e999999999 steps"),
    "a budget with a negative exponent": GOOD.replace("20 steps", "1e-999999999 steps"),
    "a budget of 10^18 steps": GOOD.replace("20 steps", "1e18 steps"),
    "a budget of 10^11 epochs": GOOD.replace("20 steps", "1e11 epochs"),
    "a budget of an exponent of 5,000 digits": GOOD.replace("20", f"1e{'9' * 5000}"),
    "a grid of evaluations at every step": GOOD.replace("20 steps", "1e12 steps")
    + "evaluation_ratio: 1.000000000000001",
    "10^12 trials": GOOD.replace("trials: 4", "trials: 1000000000000"),
    "10^12 repeats": f"{GOOD}repeats: 1000000000000",
    "a batch size of 10^30": GOOD.replace("8..64", "1e30"),
    "a batch size of 10^30 in digits": GOOD.replace("8..64", "1" + "0" * 30),
    "batch sizes up to 1e300": GOOD.replace("8..64", "8..1e300"),
    "batch sizes up to a number of 4,400 digits": GOOD.replace("8..64", f"8..{'9' * 4400}"),
    "6·10^11 studies": "workload: wide.py:Wide\ngrid:\n  batch_size: 8\n  optimizer: sgd\n"
    + _FIELDS,
    "three thousand targets": f"{GOOD}target: [{_MANY}]",
    "a target of two points": f"{GOOD}target: validation_error < 1.2.3",
    "a target of one point": f"{GOOD}target: validation_error < .",
    "an infinite target": f"{GOOD}target: validation_error < 1e999",
    "half a surrogate pair": f'{GOOD}search: {{learning_rate: {{discrete: ["\\ud800"]}}}}',
    "half a surrogate pair in a key": f'{GOOD}search: {{"\\ud800": 1}}',
    "half a surrogate pair in a file's name": 'workload: "\\ud800.py:A"\ngrid: {optimizer: sgd}',
    "a NUL in a file's name": 'workload: "\\0.py:A"\ngrid: {optimizer: sgd}',
    "an escape beyond Unicode": f'{GOOD}name: "\\U00110000"',
    "a file's name of 500 letters": f"workload: {'n' * 500}.py:A\ngrid: {{optimizer: sgd}}",
    "an optimizer's file of 500 letters": GOOD.replace("[sgd]", f"{'n' * 500}.py:A"),
    "an optimizer's file with a NUL": GOOD.replace("[sgd]", '"\\0.py:A"'),
    "nobody's home folder": "workload: ~nobody-at-all/a.py:A\ngrid: {optimizer: sgd}",
    "a name of 300 letters": f"{GOOD}name: {'n' * 300}",
    "the abstract optimizer": GOOD.replace("[sgd]", "Optimizer"),
    "a module for an optimizer": GOOD.replace("[sgd]", "lr_scheduler"),
    "extends what never ends": f"{GOOD}extends: /dev/zero",
    "extends a NUL": f'{GOOD}extends: "\\0.yaml"',
    "extends half a surrogate pair": f'{GOOD}extends: "\\ud800.yaml"',
    "extends nobody's home folder": f"{GOOD}extends: ~nobody-at-all/a.yaml",
    "extends a name of 500 letters": f"{GOOD}extends: {'n' * 500}.yaml",
    "extends a folder": f"{GOOD}extends: ./",
    "files with a NUL": f'{GOOD}files: ["\\0"]',
    "a file's name of 500 letters among files": f"{GOOD}files: [{'n' * 500}]",
    "files of nobody": f"{GOOD}files: [~nobody-at-all/a]",
    "text with line ends": f'{GOOD}search: {{"a\\nb": 1}}',
}
"""Experiment files. ``wide.py:Wide`` has fields f0 … f7; each file ends in an ExperimentError."""
