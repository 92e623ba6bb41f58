"""Commands and files in the documents: blocks fenced as `sh` or `yaml`."""

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
# Words before a program that are not part of its command line.
_BEFORE: Final = re.compile(r"^(\w+=.*|sudo|exec|\()$")
_BETWEEN: Final = frozenset({"&&", "||", "|", ";", "&", "--", "(", ")"})


def blocks(language: str) -> list[tuple[str, str]]:
    """Return (document, text) of each block, without its indentation."""
    return [
        (str(path.relative_to(ROOT)), block)
        for path in DOCUMENTS
        for block in fenced(path.read_text(encoding="utf-8"), language)
    ]


def fenced(text: str, language: str) -> list[str]:
    """Return the blocks fenced as that language in a text, without their indentation."""
    return [
        re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for indent, named, block in _FENCED.findall(text)
        if named == language
    ]


def mentioned() -> list[tuple[str, str]]:
    """Return (document, command) of each command inside a sentence, with arguments and without an `…`."""
    return [
        (str(path.relative_to(ROOT)), command)
        for path in DOCUMENTS
        for command in _MENTIONED.findall(_FENCED.sub("", path.read_text(encoding="utf-8")))
        if "…" not in command
    ]


def commands(text: str) -> list[list[str]]:
    """Return each command of a text as words, without the words before the program."""
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
    """Return the text without comments: an apostrophe in one would open a quotation."""
    return re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)


def typed(text: str) -> Iterator[str]:
    """Yield the reader's input: the shortest runs of lines that a shell can parse, without empty ones."""
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
    """Return whether a shell would run it; for an unfinished here-document, a shell only warns."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return not done.returncode and not done.stderr
