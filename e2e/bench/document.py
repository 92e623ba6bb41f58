"""docs/benchmarks.md: sections that a benchmark replaces, each its own, leaving the rest as it is."""

import re


def with_section(document: str, key: str, body: str) -> str:
    """The document with the section of that key replaced, or added at the end.

    key: letters, digits and dashes. Around each section stands a pair of HTML comments.
    """
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    section = f"{begin}\n{body.strip()}\n{end}"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if found.search(document):
        return found.sub(lambda _: section, document)
    return f"{document.rstrip()}\n\n{section}\n".lstrip()
