"""Habits of this repository that no linter knows."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

PACKAGES: Final = ("config", "scheduler", "deviceplugin", "e2e")
MADE_BY_TOOLS: Final = {
    ".git", ".venv", "build", "dist", "__pycache__",
    ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache",
}  # fmt: skip

MAX_FILE_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 50
MAX_MODULES: Final = 20

# Somebody's machine, and where packages come from: neither is the same for the next person.
MACHINE_PATH: Final = re.compile(r"(?<![\w.}>-])/(?:home(?!/kubernetes/bin)|root|work|Users)/\w")
REGISTRY: Final = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|proxy\.golang\.org|static\.crates\.io)\b"
    r"|--(?:extra-)?index-url\b|--find-[l]inks\b"
)


def files_known_to_git() -> list[Path] | None:
    """Tracked files, and those that would be with `git add --all`. None without git or outside of a clone."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def files_on_disk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in MADE_BY_TOOLS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from files_on_disk(path)
        else:
            yield path


def repository_files() -> list[Path]:
    known = files_known_to_git()
    return [path for path in (files_on_disk(ROOT) if known is None else known) if path.is_file()]


FILES: Final = repository_files()
TOP_LEVEL: Final = {
    "config", "deploy", "deviceplugin", "docs", "e2e", "requirements", "scheduler", "tests",
    ".ci", ".dockerignore", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "Makefile", "README.md", "conftest.py", "pyproject.toml", "setup.py",
}  # fmt: skip


def test_no_program_leaves_files_of_its_own() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} <= TOP_LEVEL


def text_of(path: Path) -> str:
    """The content, or nothing for a file that is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def our_sources() -> list[Path]:
    """Python files of the packages, less what is generated."""
    ours = (path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES)
    return [path for path in ours if not path.stem.endswith(("_pb2", "_pb2_grpc"))]


def matches(pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` of each line that the pattern is found in."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def pins(requirements: str) -> set[str]:
    return set(re.findall(r"^(\S+==\S+(?: ;[^\\\n]*)?)", requirements, flags=re.MULTILINE))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def function_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_the_files_found_are_those_of_the_repository() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {"LICENSE", "pyproject.toml", "scheduler/__init__.py", "tests/repository/test_repository.py"} <= names
    assert not {part for name in names for part in Path(name).parts} & MADE_BY_TOOLS


def test_without_git_the_same_python_files_are_found() -> None:
    on_disk = {path for path in files_on_disk(ROOT) if path.suffix == ".py"}
    assert on_disk == {path for path in FILES if path.suffix == ".py"}


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        pytest.param(MACHINE_PATH, "cd /" + "home/ann/clone", "https://example.com/home/page", id="path of a machine"),
        pytest.param(REGISTRY, "https://py" + "pi.org/simple", "https://kubernetes.io/docs", id="package registry"),
        pytest.param(REGISTRY, "--index" + "-url x", "--no-emit-index", id="option that names a registry"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], bad: str, good: str) -> None:
    assert pattern.search(bad)
    assert not pattern.search(good)


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert matches(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert matches(REGISTRY) == []


def test_what_is_tested_is_what_runs() -> None:
    # Without the markers: on some systems, dev needs a package that running does not need there.
    runtime, build, dev = (
        {pin.partition(" ")[0] for pin in pins((ROOT / f"requirements/{name}.txt").read_text("utf-8"))}
        for name in ("runtime", "build", "dev")
    )
    assert runtime | build <= dev


def test_what_makes_the_site_replaces_nothing_that_is_tested() -> None:
    dev, docs = (
        {pin.partition(" ")[0] for pin in pins((ROOT / f"requirements/{name}.txt").read_text("utf-8"))}
        for name in ("dev", "docs")
    )
    tested = {pin.partition("==")[0] for pin in dev}
    assert {pin for pin in docs if pin.partition("==")[0] in tested} <= dev


def test_the_build_backend_is_the_pinned_one() -> None:
    backend = re.search(r'^requires = \["(.+)"\]', (ROOT / "pyproject.toml").read_text("utf-8"), flags=re.MULTILINE)
    assert backend is not None
    assert {backend[1]} == pins((ROOT / "requirements/build.txt").read_text("utf-8"))


def test_a_package_file_holds_its_docstring_and_nothing_else() -> None:
    bodies = {path: ast.parse(text_of(path)).body for path in our_sources() if path.name == "__init__.py"}
    assert bodies
    assert [
        path.relative_to(ROOT).as_posix()
        for path, body in bodies.items()
        if len(body) != 1 or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Constant)
    ] == []


def test_no_file_outgrows_a_reader() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(text_of(path).splitlines()) for path in our_sources()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_merge_is_left_half_done() -> None:
    mark = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [path.relative_to(ROOT).as_posix() for path in FILES if mark.search(text_of(path))] == []


def test_no_function_outgrows_a_screen() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}": function_lines(function)
        for path in our_sources()
        for function in functions(ast.parse(text_of(path)))
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_folder_outgrows_a_screen() -> None:
    modules = Counter(path.parent.relative_to(ROOT).as_posix() for path in FILES if path.suffix == ".py")
    large = {folder: many for folder, many in modules.items() if many > MAX_MODULES}
    assert large == {}


def test_modules_are_named_after_their_subject() -> None:
    nameless = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [path.relative_to(ROOT).as_posix() for path in our_sources() if path.stem in nameless] == []
