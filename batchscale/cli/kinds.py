"""Commands whose options depend on the KIND that is typed: ``batchscale import csv --help``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from results.extensions import Extension

_STATE = "kinds"


class KindCommand(TyperCommand):
    """A command that adds the options of an importer or exporter to its options.

    An error of the kind or its options is raised when the command runs (``chosen_kind``), so that
    it is reported as any error of a command.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        state = ctx.meta.get(_STATE)
        return [*super().get_params(ctx), *(state.parameters if state else ())]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        state = ctx.meta[_STATE] = _State()
        kind = self._kind(args)
        try:
            if kind is not None:
                from batchscale.exchange import extension

                state.extension = extension(str(self.name), kind)
                state.parameters = _parameters(state.extension, self._flags())
            return super().parse_args(ctx, args)
        except (Exception, KeyboardInterrupt) as error:
            unknown = hasattr(error, "possibilities")  # click's NoSuchOption
            if hasattr(error, "exit_code") and not (unknown and state.extension):
                raise  # wrong usage, or --help
            state.error = error
            if unknown and state.extension:
                state.error = state.extension.unknown(str(getattr(error, "option_name", "")))
            ctx.params = {parameter.name: None for parameter in self.params}
            return []

    def invoke(self, ctx: Any) -> Any:
        state = ctx.meta[_STATE]
        names = [parameter.name for parameter in state.parameters]
        state.values = {name: ctx.params.pop(name) for name in names if name in ctx.params}
        return super().invoke(ctx)

    def _flags(self) -> set[str]:
        flags = {flag for each in self.params for flag in each.opts if flag.startswith("-")}
        return flags | {"--help"}

    def _kind(self, args: Sequence[str]) -> str | None:
        """The first argument that names a kind, else the first argument."""
        from results.extensions import KINDS, LOG

        flags = self._flags()
        before = ("", *args)
        arguments = [
            text
            for last, text in zip(before, args, strict=False)
            if not text.startswith("-") and last not in flags
        ]
        kinds = [text for text in arguments if ".py:" in text or KINDS[str(self.name)].knows(text)]
        first = next(iter([*kinds, *arguments]), None)
        text = first or "."
        is_path = Path(text).exists() or "." in text or "/" in text
        return LOG if self.name == "import" and not kinds and is_path else first


class _State:
    def __init__(self) -> None:
        self.extension: Extension | None = None
        self.parameters: list[Any] = []
        """Click's parameters of the extension's options."""
        self.values: dict[str, Any] = {}
        self.error: BaseException | None = None


def chosen_kind(ctx: typer.Context) -> tuple[Extension, dict[str, Any]]:
    """The importer or exporter that was typed, and the options given to it.

    Raises:
        ResultsError: there is none, or an option that it does not have.
        CommandError: a text that is not NAME=VALUE.
    """
    state = ctx.meta[_STATE]
    if state.error is not None:
        raise state.error
    options = {name: value for name, value in state.values.items() if value not in (None, [], ())}
    for name in options:
        parameter = state.extension.parameters[name]
        if _is_mapping(parameter.type):
            metavar = parameter.option.metavar or "NAME=VALUE"
            options[name] = pairs(options[name], parameter.flag, metavar, parameter.option.help)
    return state.extension, options


def pairs(texts: Sequence[str], flag: str, metavar: str, hint: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping.

    Raises:
        CommandError: a text without both sides, or a name given twice.
    """
    from batchscale.output.errors import CommandError

    mapping: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise CommandError(f"{flag} {text} is not {metavar}", hint=hint)
        if name in mapping:
            raise CommandError(
                f"{flag} gives {name} twice: {mapping[name]} and {value}", hint="give it once"
            )
        mapping[name] = value
    return mapping


def _parameters(extension: Extension, taken: set[str]) -> list[Any]:
    """Click's parameters for the options of an extension."""
    from results.errors import ResultsError

    parameters, annotations = [], {}
    for name, each in extension.parameters.items():
        if each.flag in taken:
            raise ResultsError(
                f"{extension.verb} {extension.name}: the command itself has an option {each.flag}",
                hint=f"give the parameter {name} another name",
            )
        option = typer.Option(
            *([] if each.type is bool else [each.flag]),
            help=each.option.help,
            metavar=each.option.metavar,
            show_default=False,
        )
        kind = list[str] if _is_mapping(each.type) else each.type
        annotations[name] = Annotated[kind if each.required else kind | None, option]
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.required else None,
                annotation=annotations[name],
            )
        )

    def function() -> None:
        """What Typer reads the parameters of."""

    vars(function)["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = annotations
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return list(typer.main.get_command(app).params)


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)
