import pytest

from config.settings.plainyaml import DocumentError, parse


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("---\n# a remark\n---\na: 1\n", [{"a": 1}], id="documents with nothing in them"),
        pytest.param("a: 1\n---\n[1, x, 2.5, true]\n", [{"a": 1}, [1, "x", 2.5, True]], id="two documents"),
        pytest.param("a:\nb: {c: , d: 1}\ne:\n- f:\n\n", [{"b": {"d": 1}, "e": [{}]}], id="keys with nothing behind"),
        pytest.param("at: 2026-01-31T00:00:00Z\n", [{"at": "2026-01-31T00:00:00Z"}], id="a date"),
        pytest.param("a: &x {n: 1}\nb: *x\n", [{"a": {"n": 1}, "b": {"n": 1}}], id="an alias"),
        pytest.param(
            "a: &x {n: 1, m: 2}\nb: {<<: *x, n: 3}\n", [{"a": {"n": 1, "m": 2}, "b": {"n": 3, "m": 2}}], id="<<"
        ),
        pytest.param('{"a": {"b": [1]}}', [{"a": {"b": [1]}}], id="JSON"),
    ],
)
def test_documents_are_plain_values(text: str, documents: list[object]) -> None:
    assert parse(text) == documents


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", "line 3: key a is in the mapping twice", id="a key twice"),
        pytest.param("x:\n  a: 1\n  a: 1\n", "line 3: key a is in the mapping twice", id="a key twice, further in"),
        pytest.param("1: a\n", "line 1: key 1 is not text", id="a number as a key"),
        pytest.param("on: a\n", "line 1: key True is not text", id="a flag as a key"),
        pytest.param("? [a]\n: b\n", "line 1: key", id="a list as a key"),
        pytest.param("a: [1\n", "line 2: ", id="an open bracket"),
        pytest.param("\ta: 1\n", "line 1: ", id="a tab"),
        pytest.param("a: !!python/object:os.system x\n", "line 1: ", id="a Python object"),
        pytest.param("&a [*a]", "its anchors make more than", id="a list in itself"),
        pytest.param("a: \x00", "is not YAML", id="a control character"),
        pytest.param("[" * 100_000, "nested more than 200 deep", id="depth"),
        pytest.param(
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "its anchors make more than",
            id="anchors of anchors",
        ),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        parse(text)
