"""JSON of any depth becomes one that a decoder reads, and nothing above the cut is another."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from config.protocol.shallow import MOST_LEVELS, decoded, shallow

_LEAVES = st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[]:,é\n', max_size=6)
_DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\{]', max_size=3), inner, max_size=3),
)


def nested(document: Any, levels: int) -> Any:  # noqa: ANN401 - JSON
    for _ in range(levels):
        document = {"a": [document]}
    return document


@given(_DOCUMENTS, st.booleans())
def test_what_is_not_deep_stays_as_it_is(document: Any, escaped: bool) -> None:  # noqa: ANN401, FBT001 - JSON
    text = json.dumps(document, ensure_ascii=escaped).encode()
    assert shallow(text) == text


def emptied(document: Any, level: int = 1) -> Any:  # noqa: ANN401 - JSON
    """The same rule, one value after the other."""
    if isinstance(document, dict):
        return {key: emptied(value, level + 1) for key, value in document.items()} if level <= MOST_LEVELS else {}
    if isinstance(document, list):
        return [emptied(value, level + 1) for value in document] if level <= MOST_LEVELS else []
    return document


@given(_DOCUMENTS, _DOCUMENTS, st.integers(MOST_LEVELS // 2 - 4, MOST_LEVELS // 2 + 4))
def test_what_is_deep_is_emptied_and_what_stands_beside_it_stays(inner: Any, beside: Any, levels: int) -> None:  # noqa: ANN401 - JSON
    document = {"before": beside, "deep": nested(inner, levels), "after": beside}
    assert json.loads(shallow(json.dumps(document).encode())) == emptied(document)


def test_only_what_a_decoder_does_not_read_is_made_another() -> None:
    asked: list[bytes] = []

    def refusing(text: bytes) -> int:
        asked.append(text)
        if len(asked) == 1:
            raise RecursionError
        return len(text)

    deep = b"[" * 10_000 + b"]" * 10_000
    assert decoded(refusing, deep) == 2 * (MOST_LEVELS + 1)
    assert asked == [deep, b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1)]
