"""Commands and files that the documents show: what is fenced as `sh` or `yaml`."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Final

from tests.support.repository import ROOT

DOCUMENTS: Final = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
_FENCED: Final = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_MENTIONED: Final = re.compile(
    r"(?<!`)`((?:gpushare-scheduler|gpushare-device-plugin|kubectl gpushare|make|kubectl apply) [^`]+)`(?!`)"
)
# Before a program, and no part of its command line.
_BEFORE: Final = re.compile(r"^(\w+=.*|sudo|exec|\()$")
_BETWEEN: Final = frozenset({"&&", "||", "|", ";", "&", "--", "(", ")"})


def blocks(language: str) -> list[tuple[str, str]]:
    """(document, text) of each, without its indentation."""
    return [
        (str(path.relative_to(ROOT)), block)
        for path in DOCUMENTS
        for block in fenced(path.read_text(encoding="utf-8"), language)
    ]


def fenced(text: str, language: str) -> list[str]:
    """What is fenced as that language in a text, without its indentation."""
    return [
        re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for indent, named, block in _FENCED.findall(text)
        if named == language
    ]


def mentioned() -> list[tuple[str, str]]:
    """(document, command) of each within a sentence, with more than the program's name and without an `…`."""
    return [
        (str(path.relative_to(ROOT)), command)
        for path in DOCUMENTS
        for command in _MENTIONED.findall(_FENCED.sub("", path.read_text(encoding="utf-8")))
        if "…" not in command
    ]


def commands(text: str) -> list[list[str]]:
    """Each command of a text as words, without what stands before the program."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " ;\n"), posix=True, punctuation_chars="();|&")
    lexer.commenters, lexer.whitespace_split = "", True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in _BETWEEN:
            found.append([])
        elif found[-1] or not _BEFORE.match(word):
            found[-1].append(word)
    return [one for one in found if one]


def uncommented(text: str) -> str:
    """Without comments: an apostrophe in one opens no quotation."""
    return re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)


def typed(text: str) -> Iterator[str]:
    """What a reader types line by line: the shortest runs of lines that a shell can read, without empty ones."""
    waiting = ""
    for line in text.splitlines():
        waiting += f"{line}\n"
        if not uncommented(waiting).strip():
            waiting = ""
        elif not line.endswith("\\") and _whole(waiting):
            yield waiting.rstrip("\n")
            waiting = ""
    if waiting:
        yield waiting.rstrip("\n")


def _whole(text: str) -> bool:
    """Whether a shell would run it; of a here-document without its end it only warns."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return not done.returncode and not done.stderr
