"""The commands of a document, typed into one shell in the document's order, with what stands for the reader's names."""

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.control_plane.processes import free_ports
from e2e.support.documents_site import NODE, DocumentsSite
from tests.support.repository import ROOT

# What has no end of its own: it is ended once it has said what it is to say, or after a minute.
_ENDLESS: Final = re.compile(r"logs .* -f$|port-forward .*[^&]$|-scheduler run |demo .*--serve")
_ENDED: Final = 124
_WITHIN_S: Final = 300
_LOOKS: Final = 1200  # every 50 ms
_UNTIL_SAID: Final = """\
{{ env {line} &
}} >{said} 2>&1
for _ in {{1..{looks}}}; do grep -qF -- {words} {said} && break; kill -0 $! 2>/dev/null || break; sleep 0.05; done
if kill $! 2>/dev/null; then echo {ended} >{code}; else wait $!; echo $? >{code}; fi
"""
_UNTIL_IT_LISTENS: Final = """\
for _ in {{1..{looks}}}; do (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.05; done
"""
_FORWARDED: Final = re.compile(r"(port-forward \S+) (\d+)")
_PORTS: Final = ("10261", "10264", "8080")
_PORT: Final = re.compile(rf"\b({'|'.join(_PORTS)})\b")
# As a word of its own: neither the shell's variable nor the head of a column.
_NAME: Final = re.compile(r"(?<![\w$-])(POD|NODE|NAMESPACE|ACCOUNT|pod\.yaml)(?![\w:=])")


@dataclass(frozen=True, slots=True)
class Typed:
    """command: as the document has it. endless: it has no end of its own."""

    command: str
    endless: bool
    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Who types a document.

    pod: the one in kube-system that the document means. ports: free ones, each for one that the document forwards to or
    listens on.
    """

    site: DocumentsSite
    pod: str
    ports: Mapping[str, int]

    def names(self, command: str) -> Mapping[str, str]:
        """What the capitals stand for in this command."""
        asks_why = re.search(r"\b(explain|describe)\b", command)
        pod = self.pod if "-n kube-system" in command else "too-big" if asks_why else "first-pod"
        own = {"NODE": NODE, "NAMESPACE": "default", "ACCOUNT": "default"}
        return own | {"POD": pod, "pod.yaml": "docs/examples/first-pod.yaml"}

    def line(self, command: str) -> str:
        """The command as this reader types it."""
        bare = re.sub(r"\s+#.*$", "", command)
        names = self.names(bare)
        filled = _NAME.sub(lambda found: names[found[1]], bare)
        forwards = _FORWARDED.search(filled)
        filled = _PORT.sub(lambda found: str(self.ports[found[1]]), filled)
        listens = f"{self.ports[forwards[2]]}:{self.site.ports[forwards[2]]}" if forwards else ""
        return _FORWARDED.sub(rf"\1 {listens}", filled) if forwards else filled


def reader(site: DocumentsSite, pod: str) -> Reader:
    """One with ports of his own."""
    return Reader(site, pod, dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)))


def typed(who: Reader, commands: Sequence[tuple[str, str]], folder: Path) -> list[Typed]:
    """All of them, whatever each says. commands: with words that an endless one is to say. folder: for their output."""
    script = folder / "typed.sh"
    lines = [_line(who, *command, folder / str(number)) for number, command in enumerate(commands)]
    script.write_text("".join([*lines, "kill $(jobs -p) 2>/dev/null; wait\n"]), encoding="utf-8")
    environment = {"PATH": who.site.path, "HOME": str(who.site.home)}
    # Ends what is in the background too.
    within = ["timeout", str(_WITHIN_S), "bash", str(script)]
    subprocess.run(within, cwd=_clone(folder), env=environment, stdin=subprocess.DEVNULL, check=False)
    return [_typed(who, command, folder / str(number)) for number, (command, _) in enumerate(commands)]


def _clone(folder: Path) -> Path:
    """What the commands name of this clone; what they write lies beside it."""
    made = folder / "clone"
    made.mkdir()
    for name in (".venv", "deploy", "docs"):
        (made / name).symlink_to(ROOT / name)
    return made


def _line(who: Reader, command: str, words: str, output: Path) -> str:
    """What the shell is given for one command."""
    line, said, code = who.line(command), f"{output}.said", f"{output}.code"
    if _ENDLESS.search(line):
        ends = {"words": shlex.quote(words), "looks": _LOOKS, "ended": _ENDED}
        return _UNTIL_SAID.format(line=line, said=said, code=code, **ends)
    given = f"{{ {line}\n}} >{said} 2>&1; echo $? >{code}\n"
    if forwards := re.search(r"port-forward \S+ (\d+):.*&$", line):
        given += _UNTIL_IT_LISTENS.format(looks=_LOOKS, port=forwards[1])
    return given


def _typed(who: Reader, command: str, output: Path) -> Typed:
    code, said = (Path(f"{output}.{what}") for what in ("code", "said"))
    if not code.exists():
        return Typed(command, endless=False, code=_ENDED, said=f"not at its end after {_WITHIN_S} s with all before it")
    endless = bool(_ENDLESS.search(who.line(command)))
    return Typed(command, endless, int(code.read_text(encoding="utf-8")), said.read_text(encoding="utf-8"))


def ended_well(one: Typed, code: int = 0) -> bool:
    """Whether it ended with that code, or went on until it was ended, where it has no end of its own."""
    return one.code == (_ENDED if one.endless else code)
