"""Commands and groups that behave like kubectl's: plain help, aliases, `help COMMAND`, hints for misspelled commands.

The docstring of a command says in one line what it does; its `epilog` has examples, one per line.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from scheduler.process.output import warn
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
_SHORTEST_PREFIX: Final = 3
_SIMILAR: Final = 0.7
_GAP: Final = 2


# Other spellings of values, by flag.
_VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "--sort-by": {"memory": "requested", "mem": "requested", ".metadata.name": "name"},
    "--dry-run": {"client": "true", "server": "true"},
}
# typer's messages, and the same in plain words.
_PLAINLY: Final = (
    (re.compile(r"^Option '--dry-run' does not take a value.*"), "expected --dry-run or --dry-run=client"),
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^Input should be a valid integer.*"), "expected a whole number"),
    (re.compile(r"^Input should be a valid number.*"), "expected a number"),
    (re.compile(r"^Input should be greater than or equal to "), "expected at least "),
    (re.compile(r"^Input should be less than or equal to "), "expected at most "),
)


class PlainError(typer.BadParameter):
    """A usage error: a line with the problem, then one with the usage."""

    def format_message(self) -> str:
        """The problem."""
        return self.message

    def show(self, file: Any = None) -> None:  # noqa: ANN401, ARG002 - click's, vendored
        """Print both lines on standard error."""
        warn([f"Error: {self.message}", *([self.ctx.get_usage()] if self.ctx is not None else [])])


@contextmanager
def _in_plain_words(ctx: Any) -> Iterator[None]:  # noqa: ANN401 - as above
    """Turn usage errors into PlainError, except those with a display of their own."""
    try:
        yield
    except UsageError as error:
        if type(error).show is not UsageError.show:
            raise
        for pattern, text in _PLAINLY:
            error.message = pattern.sub(text, error.message)
        if (parameter := getattr(error, "param", None)) is not None and is_flag(parameter) and not error.param_hint:
            error.param_hint = f"'{flag_of(parameter)}'"
        message = error.format_message()
        if hasattr(error, "possibilities"):
            message = f"no such option {one_line(error.option_name)}{_similar(error.option_name, ctx.command)}"
        raise PlainError(message, error.ctx or ctx) from error


def _similar(option: str, command: Any) -> str:  # noqa: ANN401 - as above
    """Return text such as `; did you mean --card?`; "" if no option of the command is similar."""
    names = {name.lstrip("-"): flag_of(one) for one in command.params for name in one.opts if name.startswith("--")}
    typed = option.lstrip("-")
    begun = [name for name in names if len(typed) >= _SHORTEST_PREFIX and name.startswith(typed)]
    near = begun or difflib.get_close_matches(typed, names, _MOST_NEAR, _SIMILAR)
    flags = dict.fromkeys(names[name] for name in near)
    return f"; did you mean {' or '.join([*flags][:_MOST_NEAR])}?" if near else ""


def _spelled(args: Sequence[str], command: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the arguments with the command's own spellings of values."""
    switches = {name for one in command.params if is_flag(one) and one.is_flag for name in one.opts}
    found = list[str]()
    for number, word in enumerate(args):
        if word == "--":
            return [*found, *args[number:]]
        flag, equals, value = word.partition("=")
        if equals:
            value = _VALUES.get(flag, {}).get(value, value)
            found.append(flag if flag in switches and value == "true" else f"{flag}={value}")
        elif found and found[-1] not in switches:
            found.append(_VALUES.get(found[-1], {}).get(word, word))
        else:
            found.append(word)
    return found


class PlainCommand(TyperCommand):
    """Command with plain help and error messages."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as above
        """Parse the arguments. Raises PlainError."""
        with _in_plain_words(ctx):
            return super().parse_args(ctx, _spelled(args, self))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command. Raises PlainError for a value that the command finds invalid."""
        with _in_plain_words(ctx):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's, vendored
        """Write the help text."""
        formatter.write("\n".join(_help(self, ctx)) + "\n")

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the usage line above an error."""
        formatter.write(f"Usage: {_usage(self, ctx)}\n")


class PlainGroup(TyperGroup):
    """Group of commands.

    aliases: map one or two words, separated by a blank, to the words that they stand for. If the second is `--dry-run`,
    that flag may be anywhere, and is dropped. default: the command to run if none is given. meant: map words that are
    not commands to advice. first: commands at the head of the list.
    """

    aliases: ClassVar[Mapping[str, Sequence[str]]] = {}
    default: ClassVar[str] = ""
    meant: ClassVar[Mapping[str, str]] = {}
    first: ClassVar[Sequence[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's, vendored
        """Parse the corrected arguments. Raises PlainError."""
        with _in_plain_words(ctx):
            return super().parse_args(ctx, self.as_meant(args))

    def as_meant(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the command first and without aliases."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
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
        if (words := self.aliases.get(f"{first} --dry-run")) is not None and (dry := _dry_run(args)):
            return list(words), [word for word in args[1:] if word != dry]
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
        near = difflib.get_close_matches(args[0], [*self.commands, *self.also], _MOST_NEAR)
        advice = f"did you mean {' or '.join(near)}?" if near else f"commands: {', '.join(self.list_commands(ctx))}"
        raise PlainError(f"no such command {one_line(args[0])}; {self.meant.get(args[0], advice)}", ctx)

    @property
    def also(self) -> dict[str, str]:
        """Map other words for a command to its name."""
        found = ((word, words) for word, words in self.aliases.items() if " " not in word)
        return {word: " ".join(words) for word, words in found if word not in self.commands}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - as above
        """Return the names of commands: those in `first`, then the others in the order in which they were added."""
        return sorted(self.commands, key=lambda name: self.first.index(name) if name in self.first else len(self.first))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the help text."""
        formatter.write("\n".join(_help(self, ctx)) + "\n")

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the usage line above an error."""
        formatter.write(f"Usage: {_usage(self, ctx)}\n")


def _dry_run(args: Iterable[str]) -> str:
    """Return the flag as typed; "" if it is absent, or its value is `none`."""
    return next((word for word in args if word.partition("=")[0] == "--dry-run" and word != "--dry-run=none"), "")


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


def flag_of(parameter: Any) -> str:  # noqa: ANN401 - as above
    """Return the name of a flag: the first long one; the others are further spellings."""
    name: str = next(one for one in parameter.opts if one.startswith("--"))
    return name


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
        if command.also:
            yield from ("", f"Also understood: {also_understood(command)}.")
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


def also_understood(group: Any) -> str:  # noqa: ANN401 - as above
    """Return the other words for commands, as `get, list (top); why (explain)`."""
    words: dict[str, list[str]] = {}
    for word, command in group.also.items():
        words.setdefault(command, []).append(word)
    return "; ".join(f"{', '.join(found)} ({command})" for command, found in words.items())


def _panel(parameter: Any) -> str:  # noqa: ANN401 - as above
    return parameter.rich_help_panel or FLAGS


def _flag(parameter: Any) -> tuple[str, str]:  # noqa: ANN401 - as above
    short = [one for one in parameter.opts if not one.startswith("--")]
    names = ", ".join([*(short or ["  "]), flag_of(parameter)]).replace("  , ", "    ")
    default = parameter.default if isinstance(parameter.default, (int, float, str)) else ""
    told = f" (default: {default})" if default and not isinstance(default, bool) else ""
    needed = " (required)" if parameter.required else ""
    return f"{names} {value_of(parameter)}".rstrip(), f"{parameter.help or ''}{told}{needed}"


def _rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    wide = max(len(name) for name, _ in rows) + _GAP
    for name, text in rows:
        yield f"  {name.ljust(wide)}{text}".rstrip()
