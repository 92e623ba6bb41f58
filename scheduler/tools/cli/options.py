"""Flags shared by several commands, with kubectl's names."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

Format = Annotated[Literal["json", "yaml"] | None, typer.Option("--output", "-o", help="Print this format.")]
TableFormat = Annotated[
    Literal["wide", "json", "yaml", "name"] | None,
    typer.Option("--output", "-o", help="Print this format, or more columns."),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the titles of columns.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Then print rows that change, until Ctrl-C.")]
ClusterFiles = Annotated[
    list[Path] | None,
    typer.Option("--cluster-file", metavar="FILE", help="Read this file, not a cluster; may be repeated."),
]
MANIFEST: Final = "Manifest of a pod or workload; - is standard input."
