"""The inventory annotation: what is written is what is read, and no text does more than raise InventoryError."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import card_uuid, inventory
from config.protocol.inventory import Card, Health, Inventory, InventoryError

words = st.text(max_size=20)
valid_uuids = st.from_regex(r"\A[0-9A-Za-z][-_.0-9A-Za-z]{0,63}\Z").filter(lambda uuid: not card_uuid.objection(uuid))


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    uuids = draw(st.lists(valid_uuids, max_size=6, unique=True))
    indexes = draw(st.lists(st.integers(0, 65_535), min_size=len(uuids), max_size=len(uuids), unique=True))
    cards = tuple(
        Card(
            index=index,
            uuid=uuid,
            model=draw(words),
            memory_mib=draw(st.integers(0, 2**40)),
            units=draw(st.integers(0, inventory.MAX_UNITS)),
            health=draw(st.sampled_from(Health)),
            reason=draw(words),
            numa=draw(st.none() | st.integers(-1, 64)),
            pci=draw(words),
            links=draw(st.dictionaries(words, words, max_size=3)),
        )
        for index, uuid in zip(sorted(indexes), uuids, strict=True)
    )
    return Inventory(draw(st.integers(1, 2**30)), draw(words), cards, draw(words))


def document(**changes: object) -> str:
    card = {"index": 0, "uuid": "GPU-a", "units": 16} | changes
    return json.dumps({"version": 1, "unitMiB": 1024, "cards": [card]})


@given(inventories())
def test_what_is_written_is_what_is_read(given_: Inventory) -> None:
    assert inventory.decode(inventory.encode(given_)) == given_


def test_the_document_of_the_protocol_is_read() -> None:
    text = (
        '{"version":1,"unitMiB":1024,"driver":"580.159.04","cards":[{"index":0,"uuid":"GPU-0","model":'
        '"NVIDIA-A100-SXM4-80GB","memoryMiB":81559,"units":79,"health":"healthy","numa":0,"pci":"0000:07:00.0",'
        '"links":{"1":"NV12"}}]}'
    )
    card = Card(
        index=0,
        uuid="GPU-0",
        model="NVIDIA-A100-SXM4-80GB",
        memory_mib=81559,
        units=79,
        numa=0,
        pci="0000:07:00.0",
        links={"1": "NV12"},
    )

    assert inventory.decode(text) == Inventory(1024, "580.159.04", (card,))
    assert json.loads(inventory.encode(inventory.decode(text))) == json.loads(text)


def test_health_is_written_even_when_it_is_the_default() -> None:
    assert '"health":"healthy"' in inventory.encode(
        Inventory(1024, "", (Card(index=0, uuid="GPU-a", model="", memory_mib=0, units=16),))
    )


def test_a_health_of_a_newer_plugin_counts_as_suspect_and_is_named() -> None:
    card = inventory.decode(document(health="resetting")).cards[0]

    assert (card.health, card.reason) == (Health.SUSPECT, "unknown-health-resetting")


def test_fields_of_a_newer_plugin_are_passed_over() -> None:
    assert inventory.decode(document(colour="green")).cards[0].uuid == "GPU-a"


def test_cards_come_ordered_by_index() -> None:
    cards = [{"index": i, "uuid": f"GPU-{i}", "units": 1} for i in (2, 0, 1)]
    text = json.dumps({"version": 1, "unitMiB": 1024, "cards": cards})

    assert [card.index for card in inventory.decode(text).cards] == [0, 1, 2]


def two_cards(**second: object) -> str:
    cards = [{"index": 0, "uuid": "GPU-a", "units": 1}, {"index": 1, "uuid": "GPU-b", "units": 1} | second]
    return json.dumps({"version": 1, "unitMiB": 1024, "cards": cards})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("{", "cannot be read", id="broken"),
        pytest.param("", "cannot be read", id="empty"),
        pytest.param("{}", "version", id="without a version"),
        pytest.param('{"version":2,"pool":[]}', "version is 2; expected 1", id="a newer version"),
        pytest.param('{"version":1,"unitMiB":0,"cards":[]}', "unitMiB", id="a unit of nothing"),
        pytest.param('{"version":1,"cards":[]}', "unitMiB", id="without a unit"),
        pytest.param('{"version":1,"unitMiB":1024}', "cards", id="without cards"),
        pytest.param(document(units=-1), "units", id="negative units"),
        pytest.param(document(units=2**31), "units", id="absurd units"),
        pytest.param(document(units="16"), "units", id="units as text"),
        pytest.param(document(units=1.5), "units", id="half a unit"),
        pytest.param(document(index=-1), "index", id="negative index"),
        pytest.param(document(uuid=""), "uuid", id="an empty UUID"),
        pytest.param(document(uuid="G" * 65), "uuid", id="a long UUID"),
        pytest.param(document(uuid="GPU a"), "card 0: 'GPU a' cannot be the UUID of a card", id="a blank in a UUID"),
        pytest.param(
            document(uuid="GPU-\x1b[2J"), r"card 0: 'GPU-\\x1b\[2J' cannot be", id="a UUID that clears screens"
        ),
        pytest.param(document(uuid="0"), "digits alone", id="a UUID that is an index"),
        pytest.param(two_cards(uuid="GPU-a"), "UUID GPU-a twice", id="a UUID twice"),
        pytest.param(two_cards(index=0), "index 0 twice", id="an index twice"),
        pytest.param("[" * 200_000, "cannot be read", id="too deep"),
        pytest.param(" " * 1_048_576, "has 1048576 characters", id="1 MiB"),
        pytest.param(document(model="\ud800").replace("\\ud800", "\ud800"), "cannot be read", id="half a character"),
    ],
)
def test_a_document_that_breaks_a_rule_is_refused_whole(text: str, complaint: str) -> None:
    with pytest.raises(InventoryError, match=complaint):
        inventory.decode(text)


@pytest.mark.parametrize(
    "uuid",
    [
        pytest.param("GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9", id="NVIDIA's"),
        pytest.param("MIG-8ef24466-da8d-5c70-aee2-d8f9f45d12f9", id="of an instance"),
        pytest.param("MIG-GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9/13/0", id="of an instance, drivers before 470"),
        *("GPU-a", "A", "0a", "card_1.b", "G" * 64),
    ],
)
def test_these_can_be_uuids(uuid: str) -> None:
    assert not card_uuid.objection(uuid)
    assert inventory.decode(document(uuid=uuid)).cards[0].uuid == uuid


@pytest.mark.parametrize(
    "uuid",
    [
        *("", " ", "GPU a", "GPU-a ", "GPU-a\n", "a,b", "!GPU-a", "#0", "-a", "--help", "..", "a/b", "0:1"),
        *(f"MIG-GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9/{end}" for end in ("13", "13/", "13/0/0", "../0", "100/0")),
        "MIG-GPU-../../../../../../../../../../../../1/0",
        *("0", "17", "٣", "²", "all", "none", "void", "G" * 65, "GPU-ä", "GPU-а", "a;reboot", "$(reboot)", "a'b", '"'),  # noqa: RUF001 - a Cyrillic letter
        *("\x00", "\x07", "\x1b[31m", "GPU-\x9b2J", "GPU-\u202e", "GPU-\u2028", "GPU-\x7f"),
    ],
)
def test_these_cannot_and_the_message_shows_what_a_terminal_would_obey(uuid: str) -> None:
    assert card_uuid.objection(uuid).isprintable()
    with pytest.raises(InventoryError) as refused:
        inventory.decode(document(uuid=uuid))
    assert str(refused.value).isprintable()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["uuid", "units", "x"]), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(["index", "uuid", "units", "memoryMiB", "health", "reason", "numa", "pci", "links"]), json_values
)
def test_any_value_of_any_field_is_taken_or_refused(name: str, value: object) -> None:
    try:
        card = inventory.decode(document(**{name: value})).cards[0]
    except InventoryError:
        return
    assert 0 <= card.units <= inventory.MAX_UNITS
    assert 0 <= card.index <= 65_535
