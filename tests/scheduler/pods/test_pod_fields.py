"""Fields of pods: unsupported ones are named, and docs/develop/pod-fields.md says what the scheduler does with each."""

import re

import pytest

from scheduler.pods.mistakes import unsupported_rules
from tests.support.builders import wire_pod
from tests.support.documents.pod_fields import STRUCTS, TABLE, Field, Verdict, read_fields, with_verdict
from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "develop" / "pod-fields.md"
REFUSALS = ROOT / "docs" / "compatibility.md"


def cases(*verdicts: Verdict) -> list[object]:
    return [pytest.param(schema, field, id=f"{schema}.{field.name}") for schema, field in with_verdict(*verdicts)]


def test_every_field_is_in_the_table_once() -> None:
    for schema, fields in TABLE.items():
        names = [field.name for field in fields]
        assert len(set(names)) == len(names), schema


@pytest.mark.parametrize(("schema", "field"), cases(Verdict.JUDGED))
def test_a_field_that_is_judged_is_read(schema: str, field: Field) -> None:
    assert field.name in read_fields(schema)


@pytest.mark.parametrize(("schema", "field"), cases(Verdict.REFUSED))
def test_a_field_that_is_refused_keeps_the_pod_waiting_with_its_words(schema: str, field: Field) -> None:
    del schema
    assert unsupported_rules(wire_pod("p", **field.example)) == (field.words,)


def test_each_unsupported_kind_is_named_once_and_all_of_them() -> None:
    volumes = [{"name": "v", "newDisk": {}}, {"name": "w", "newDisk": {}}, {"name": "x", "anotherDisk": {}}]
    pod = wire_pod("p", volumes=volumes, resourceClaims=[{"name": "r"}, {"name": "s"}])
    assert unsupported_rules(pod) == ("volumes of kind anotherDisk", "volumes of kind newDisk", "resource claims")


@pytest.mark.parametrize("schema", STRUCTS)
def test_whatever_is_read_is_in_the_table_and_decides_something(schema: str) -> None:
    deciding = {field.name for field in TABLE[schema] if field.verdict is not Verdict.IRRELEVANT}
    assert read_fields(schema) - deciding == set()


@pytest.mark.parametrize(
    "field",
    [field for field in TABLE["Volume"] if field.verdict is Verdict.IRRELEVANT],
    ids=lambda field: field.name,
)
def test_a_volume_that_any_node_can_make_keeps_nobody_waiting(field: Field) -> None:
    pod = wire_pod("p", volumes=[{"name": "v", field.name: {} if field.name != "name" else "v"}])
    assert unsupported_rules(pod) == ()


def test_every_field_is_named_in_the_document() -> None:
    named = set(re.findall(r"`([^`\n]+)`", DOCUMENT.read_text(encoding="utf-8")))
    assert {field.name for fields in TABLE.values() for field in fields} <= named


def test_every_word_of_a_refusal_is_in_the_hand_written_part() -> None:
    written = REFUSALS.read_text(encoding="utf-8")
    words = {field.words for _, field in with_verdict(Verdict.REFUSED)}
    assert [word for word in sorted(words) if not word.startswith("volumes of kind") and word not in written] == []
