"""The options that commands share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from batchscale.output.tables import Format

SOURCE = "A results folder or URI, `published`, `own`, or a CSV or Parquet file of your own."

Source = Annotated[str | None, typer.Argument(help=SOURCE + " Else the default results folder.")]
Sources = Annotated[list[str], typer.Argument(help=SOURCE, metavar="SOURCE", show_default=False)]
Results = Annotated[
    str | None,
    typer.Option(
        "--results",
        metavar="DIR_OR_URI",
        help="The results folder. Else $BATCHSCALE_RESULTS, else results/runs.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TEXT",
        help='"METRIC < VALUE": compute steps to target again from the measurements.',
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="SQL", help="Only trials for which this holds: \"optimizer = 'sgd'\"."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="One curve for each value of these columns of the training algorithm; "
        "the others are minimized over. Give it once a column, or with commas.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="VALUE",
        help="Hold the others against this curve, which comes first: sgd.",
    ),
]
Tolerance = Annotated[
    float, typer.Option("--tolerance", help="What counts as perfect, and as maximal: within 0.2.")
]
Estimator = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="What stands for a batch size: minimum, best_of_10 or median_of_searches. "
        "Else what the experiment says.",
    ),
]
SearchOption = Annotated[
    str,
    typer.Option(
        "--search",
        metavar="present|all",
        help="Which searches of a study count: its latest alone, or all that are recorded.",
    ),
]
Width = Annotated[
    str | None,
    typer.Option(
        "--width",
        metavar="WIDTH",
        help="column (3.4 inches), two-columns (7), slide (10, larger type), or inches. Else one "
        "column, or two where the figure needs them.",
    ),
]
Style = Annotated[
    str | None,
    typer.Option(
        "--style",
        metavar="FILE",
        help="A matplotlib style sheet, or the name of one: what it sets wins.",
    ),
]
Under = Annotated[
    list[str] | None,
    typer.Option(
        "--under",
        metavar="BUDGET",
        help='What trials had within a budget: "5000 steps", "10 epochs" or "1e6 examples". '
        "Give it once a budget.",
    ),
]
Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="NAME",
        help="Also the critical batch size as others define it: zhang2024 or mccandlish2018.",
    ),
]
LawOption = Annotated[
    str | None,
    typer.Option(
        "--law",
        metavar="COLUMN",
        help="Also the critical batch size as a power of this column, across curves: width, or "
        "target.",
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="KEY=VALUE", help="A metaparameter, or a field of the workload."
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=VALUE", help="A field of the workload."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda. Else a GPU where there is one.")
]
Fmt = Annotated[Format, typer.Option("--format", help="How tables are printed.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Out = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here.")]


def chosen(format: Format, json: bool) -> Format:
    """The format asked for: ``--json`` is ``--format json``."""
    return "json" if json else format


def columns(by: Sequence[str] | None) -> list[str] | None:
    """The columns of ``--by a --by b`` or ``--by a,b``."""
    return [name.strip() for text in by for name in text.split(",") if name.strip()] if by else None


def assignments(texts: Sequence[str], option: str) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a mapping, each value as an experiment file would read it.

    Raises:
        CommandError: a text without ``=``.
    """
    from batchscale.output.errors import CommandError
    from experiments.config.yaml_lines import read

    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(
                f"{option} {text} is not KEY=VALUE", hint=f"for example: {option} learning_rate=0.1"
            )
        found[key.strip()] = read(value, option)[0]
    return found


def seconds(text: str) -> float:
    """A length of time: ``2h``, ``90m``, ``1h30m``, ``45s``, ``2d``; a bare number is seconds.

    Raises:
        CommandError: it is none, or not above zero.
    """
    from batchscale.output.errors import CommandError

    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "": 1}
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms]?)", text.strip())
    if "".join(number + unit for number, unit in parts) == text.strip() and parts:
        total = sum(float(number) * units[unit] for number, unit in parts)
        if total > 0:
            return total
    raise CommandError(
        f"--for {text} is not a length of time", hint="for example: 2h, 90m, 1h30m or 45s"
    )
