"""The options that several commands have, and how their texts are read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from batchscale.output.tables import Format

if TYPE_CHECKING:
    from analysis.figure_data import Query

SOURCE = "A results folder or URI, `published`, `own`, or a CSV or Parquet file of your own."
_DEFAULT = " Default: $BATCHSCALE_RESULTS, or results/runs."

Source = Annotated[str | None, typer.Argument(help=SOURCE + _DEFAULT)]
Folder = Annotated[
    str | None, typer.Argument(help="A results folder or URI." + _DEFAULT, metavar="RESULTS")
]
Sources = Annotated[list[str], typer.Argument(help=SOURCE, metavar="SOURCE", show_default=False)]


def option(flag: str, metavar: str, help: str) -> Any:
    """An option of a command, with a value."""
    return typer.Option(flag, metavar=metavar, help=help)


Results = Annotated[str | None, option("--results", "DIR_OR_URI", "The results folder." + _DEFAULT)]
Target = Annotated[
    str | None,
    option(
        "--target", "TEXT", '"METRIC < VALUE": compute steps to target again from the measurements.'
    ),
]
Where = Annotated[
    str | None, option("--where", "SQL", "Only trials for which this holds: \"optimizer = 'sgd'\".")
]
By = Annotated[
    list[str] | None,
    option(
        "--by",
        "COLUMN",
        "One curve for each value of these columns of the training algorithm; "
        "the best over the others is taken. Repeat it, or separate columns by commas.",
    ),
]
Baseline = Annotated[
    str | None,
    option(
        "--baseline", "VALUE", "Compare the other curves with this one, which is listed first: sgd."
    ),
]
Tolerance = Annotated[
    float, typer.Option("--tolerance", help="Deviation that still counts as perfect or as maximal.")
]
Estimator = Annotated[
    str | None,
    option(
        "--estimator",
        "NAME",
        "What represents a batch size: minimum, best_of_10 or median_of_searches. "
        "Default: as the experiment says.",
    ),
]
Search = Annotated[
    str,
    option(
        "--search",
        "present|all",
        "Which searches of a study count: the latest, or all recorded ones.",
    ),
]
Unit = Annotated[
    str | None,
    option(
        "--unit",
        "tokens|sequences|examples",
        "What batch sizes and data are counted in. Default: examples, as recorded.",
    ),
]
Read = Annotated[
    str | None,
    option(
        "--read",
        "final",
        "final: compare batch sizes at the loss of --target, by the losses at the end of runs with "
        "several budgets. Without --target, regimes ranks the curves at each batch size.",
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda. Default: a GPU if there is one.")
]
Fmt = Annotated[Format, typer.Option("--format", help="How tables are printed.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Out = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here.")]


def _query(
    sources: Sources,
    target: Target = None,
    where: Where = None,
    by: By = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 0.2,
    estimator: Estimator = None,
    search: Search = "present",
    unit: Unit = None,
    read: Read = None,
) -> Query:
    """The options that make a query, each declared once."""
    from analysis.figure_data import Query

    return Query(
        sources=sources, target=target, where=where, by=columns(by), baseline=baseline,
        tolerance=tolerance, estimator=estimator, search=search, unit=unit, read=read,
    )  # fmt: skip


def with_query(*, sources: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``_query`` in the place of its parameter ``query``.

    Args:
        sources: whether the command gets the argument SOURCE too.
    """
    options = inspect.signature(_query, eval_str=True, locals={"Query": object}).parameters
    names = [name for name in options if sources or name != "sources"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, localns={"Query": object}, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == "query":
                parameters += [options[name] for name in names]
            else:
                parameters.append(parameter.replace(annotation=hints[name]))

        @wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            command(query=_query(**{"sources": (), **given}), **values)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        )
        run.__annotations__ = {}
        return run

    return decorate


def output_format(format: Format, json: bool) -> Format:
    """``--json`` is ``--format json``."""
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

    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(
                f"{option} {text} is not KEY=VALUE", hint=f"for example: {option} learning_rate=0.1"
            )
        values[key.strip()] = read(value, option)[0]
    return values


def seconds(text: str, option: str = "--for") -> float:
    """A length of time: ``2h``, ``90m``, ``1h30m``, ``45s``, ``2d``; a bare number is seconds.

    Raises:
        CommandError: it is not a length of time, or not above zero.
    """
    from batchscale.output.errors import CommandError

    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "": 1}
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms]?)", text.strip())
    if "".join(number + unit for number, unit in parts) == text.strip() and parts:
        total = sum(float(number) * units[unit] for number, unit in parts)
        if total > 0:
            return total
    raise CommandError(
        f"{option} {text} is not a length of time", hint="for example: 2h, 90m, 1h30m or 45s"
    )
