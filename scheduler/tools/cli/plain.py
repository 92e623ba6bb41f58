"""Commands and groups that behave like kubectl's: plain help, aliases, `help COMMAND`, hints for misspelled commands.

The docstring of a command says in one line what it does; its `epilog` has examples, one per line.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from scheduler.process.terminal import one_line

FLAGS: Final = "Flags"
CONNECTION: Final = "Connection flags"
# Names of kinds: kubectl's and ours.
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("node", "nodes", "no"), "nodes"),
    **dict.fromkeys(("pod", "pods", "po"), "pods"),
    **dict.fromkeys(("card", "cards", "gpu", "gpus"), "cards"),
    "cluster": "cluster",
}
HELP: Final[Mapping[str, object]] = {"help_option_names": ["-h", "--help"]}
# typer vendors click and exports little of it.
UsageError: Final[Any] = typer.BadParameter.__bases__[0]
_MOST_NEAR: Final = 3
_GAP: Final = 2


# kubectl's other spelling of a flag.
_SPELLINGS: Final = {"--dry-run=client": "--dry-run"}
# typer's messages about a value, with a plain version of each.
_PLAINLY: Final = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^Input should be a valid integer.*"), "expected a whole number"),
    (re.compile(r"^Input should be a valid number.*"), "expected a number"),
    (re.compile(r"^Input should be greater than or equal to "), "expected at least "),
    (re.compile(r"^Input should be less than or equal to "), "expected at most "),
)


class PlainCommand(TyperCommand):
    """Command with plain help and error messages."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's, vendored
        """Parse the arguments. Raises a usage error in plain words."""
        try:
            return super().parse_args(ctx, [_SPELLINGS.get(word, word) for word in args])
        except typer.BadParameter as error:
            for pattern, text in _PLAINLY:
                error.message = pattern.sub(text, error.message)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's, vendored
        """Write the help text."""
        formatter.write("\n".join(_help(self, ctx)) + "\n")

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the usage line above an error."""
        formatter.write(f"Usage: {_usage(self, ctx)}\n")


class PlainGroup(TyperGroup):
    """Group of commands.

    aliases: one word, or two with a blank, mapped to the words that they stand for. default: command to run if a group
    is called without one. meant: unknown words, mapped to the commands that the user may have meant. first: commands at
    the top of the list.
    """

    aliases: ClassVar[Mapping[str, Sequence[str]]] = {}
    default: ClassVar[str] = ""
    meant: ClassVar[Mapping[str, Sequence[str]]] = {}
    first: ClassVar[Sequence[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's, vendored
        """Parse the corrected arguments."""
        return super().parse_args(ctx, self.as_meant(args))

    def as_meant(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the command first and without aliases."""
        if args[:1] == ["help"]:
            return [*args[1:], "--help"]
        front = _leading(args, {name for one in self.commands.values() for name in _taking_a_value(one)})
        own = {name for one in self.params for name in one.opts} | {"-h", "--help"}
        if front == len(args) and self.default and not own.intersection(args):
            return [self.default, *args]
        if own.intersection(args[:front]):
            return list(args)
        command, rest = self._unaliased(args[front:])
        if self.default and command and command[0] not in self.commands and command[0].startswith("-"):
            command = [self.default, *command]
        return [*command, *args[:front], *rest]

    def _unaliased(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return (the words of the command, the words that follow)."""
        first, second = args[0] if args else "", args[1] if len(args) > 1 else ""
        kind, slash, name = second.partition("/")
        if slash and (words := self.aliases.get(f"{first} {kind}")) is not None:
            return list(words), [name, *args[2:]]
        if (words := self.aliases.get(f"{first} {second}")) is not None:
            return list(words), list(args[2:])
        kind, slash, name = first.partition("/")
        if slash and (words := self.aliases.get(kind)) is not None:
            return list(words), [name, *args[1:]]
        return list(self.aliases.get(first, args[:1])), list(args[1:])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - as above
        """Find the command. Raises a usage error that suggests similar commands."""
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        near = self.meant.get(args[0]) or difflib.get_close_matches(args[0], self.commands, _MOST_NEAR)
        advice = f"did you mean {' or '.join(near)}?" if near else f"commands: {', '.join(self.list_commands(ctx))}"
        raise UsageError(f"no such command {one_line(args[0])}; {advice}", ctx)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - as above
        """Return the names of commands: those in `first`, then the others in the order in which they were added."""
        return sorted(self.commands, key=lambda name: self.first.index(name) if name in self.first else len(self.first))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the help text."""
        formatter.write("\n".join(_help(self, ctx)) + "\n")

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the usage line above an error."""
        formatter.write(f"Usage: {_usage(self, ctx)}\n")


def _leading(args: Sequence[str], valued: Iterable[str]) -> int:
    """Return the number of leading arguments that are flags or their values."""
    number, valued = 0, frozenset(valued)
    while number < len(args) and args[number].startswith("-") and args[number] != "--":
        number += 2 if args[number] in valued else 1
    return min(number, len(args))


def _taking_a_value(command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    for inner in getattr(command, "commands", {}).values():
        yield from _taking_a_value(inner)
    for one in command.params:
        if is_flag(one) and not one.is_flag:
            yield from one.opts


def is_flag(parameter: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether the parameter begins with a dash."""
    return all(one.startswith("-") for one in parameter.opts)


def value_of(parameter: Any) -> str:  # noqa: ANN401 - as above
    """Return the placeholder of its value in the help: its metavar or its choices; "" for a flag without a value."""
    if is_flag(parameter) and parameter.is_flag:
        return ""
    choices = "|".join(item.value for item in parameter.shell_complete(None, ""))
    return parameter.metavar or choices or parameter.name.upper()


def arguments_of(command: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the arguments in order, such as `NODE` or `[NODE...]`."""
    found = []
    for one in (each for each in command.params if not is_flag(each)):
        many = "" if one.nargs == 1 else "..."
        shown = f"{value_of(one)}{many}"
        found.append(shown if one.required else f"[{shown}]")
    return found


def _help(command: Any, ctx: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    yield command.help or ""
    if command.epilog:
        yield from ("", "Examples:", *(f"  {line.strip()}" for line in command.epilog.strip().splitlines()))
    commands = commands_of(command)
    if commands:
        yield from ("", "Commands:", *_rows([(name, one.help or "") for name, one in commands]))
    yield from ("", "Usage:", f"  {_usage(command, ctx)}")
    for panel in (FLAGS, CONNECTION):
        rows = [_flag(one) for one in command.params if is_flag(one) and _panel(one) == panel and not one.hidden]
        if rows:
            yield from ("", f"{panel}:", *_rows(rows))
    if commands:
        yield from ("", f'Use "{ctx.command_path} COMMAND -h" for more about a command.')


def _usage(command: Any, ctx: Any) -> str:  # noqa: ANN401 - as above
    words = ["COMMAND"] if commands_of(command) else arguments_of(command)
    return " ".join([ctx.command_path, *words, "[flags]"])


def commands_of(command: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - as above
    """Return (name, command) for each command of a group, in order; nothing for a command."""
    group = getattr(command, "commands", {})
    return [(name, group[name]) for name in command.list_commands(None)] if group else []


def _panel(parameter: Any) -> str:  # noqa: ANN401 - as above
    return parameter.rich_help_panel or FLAGS


def _flag(parameter: Any) -> tuple[str, str]:  # noqa: ANN401 - as above
    short = [one for one in parameter.opts if not one.startswith("--")]
    long = [one for one in parameter.opts if one.startswith("--")]
    names = ", ".join([*(short or ["  "]), *long]).replace("  , ", "    ")
    default = parameter.default if isinstance(parameter.default, (int, float, str)) else ""
    told = f" (default: {default})" if default and not isinstance(default, bool) else ""
    needed = " (required)" if parameter.required else ""
    return f"{names} {value_of(parameter)}".rstrip(), f"{parameter.help or ''}{told}{needed}"


def _rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    wide = max(len(name) for name, _ in rows) + _GAP
    for name, text in rows:
        yield f"  {name.ljust(wide)}{text}".rstrip()
