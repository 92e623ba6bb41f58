"""The generated part of docs/isolation.md, out of the models."""

from config.settings.isolation import PLACEHOLDERS, IsolationHook, IsolationMechanism, IsolationMount
from tests.support.documents.configuration_document import section


def isolation_markdown() -> str:
    """The placeholders, and every field of a description."""
    rows = "\n".join(f"| `{{{name}}}` | {meaning} |" for name, meaning in PLACEHOLDERS.items())
    parts = [
        f"## Placeholders\n\n| placeholder | of a container |\n|---|---|\n{rows}\n",
        section("## Fields", IsolationMechanism),
        section("### `mounts[]`", IsolationMount),
        section("### `hooks[]`", IsolationHook),
    ]
    return "\n".join(parts)
