"""What the cards of an NVIDIA driver are made of."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import CardFailed, DriverCard, Opened, SourceFailed
from deviceplugin.driver.nvml import NvmlSource
from tests.support.node.nvml_double import MIB, NvmlCard, NvmlDouble, card, nvlinks, pci

GONE_FUNCTION = pynvml.NVMLError_FunctionNotFound()


def cards(*given: NvmlCard) -> tuple[DriverCard, ...]:
    """As found: those that can be described, with the links among them."""
    source, found = NvmlSource(NvmlDouble(*given)), list[DriverCard]()
    for index in range(source.open().count):
        with contextlib.suppress(CardFailed):
            found.append(source.describe(index))
    linked = source.links([card.uuid for card in found])
    return tuple(replace(card, links=linked[card.uuid]) for card in found)


def links(*given: NvmlCard) -> list[dict[str, str]]:
    """Of each card."""
    return [dict(found.links) for found in cards(*given)]


def not_text(*_: object) -> str:
    """As newer versions of pynvml answer bytes that are no UTF-8."""
    return b"\xff".decode()


@pytest.mark.parametrize("said", [b"\xff", not_text], ids=["bytes", "decoded by pynvml"])
def test_a_card_whose_uuid_is_not_text_costs_no_other_card(said: object) -> None:
    given = card(0, nvmlDeviceGetUUID=said), card(1)

    assert [found.index for found in cards(*given)] == [1]
    source = NvmlSource(NvmlDouble(*given))
    source.open()
    with pytest.raises(CardFailed, match=r"^card 0: NVML's text for it is not UTF-8$"):
        source.describe(0)


@pytest.mark.parametrize(
    ("said", "model"),
    [(b"\xff", ""), (not_text, ""), ("Tesla\x1b[2J\nT4 ", "Tesla [2J T4")],
    ids=["bytes", "no", "ESC"],
)
def test_a_name_that_is_not_text_costs_no_card(said: object, model: str) -> None:
    (found,) = cards(card(0, nvmlDeviceGetName=said))

    assert found.model == model


def test_a_card_is_described_as_the_kernel_and_programs_know_it() -> None:
    double = NvmlDouble(card(0, nvmlDeviceGetNumaNodeId=1))
    assert NvmlSource(double).open() == Opened("580.95.05", 1)
    assert cards(*double.nvml_cards) == (
        DriverCard(
            index=0,
            uuid="GPU-0",
            model="NVIDIA H100 80GB HBM3",
            memory_mib=80 * 1024 - 640,
            reserved_mib=640,
            minor=0,
            pci="0000:07:00.0",
            numa=1,
        ),
    )


def test_memory_is_whole_mib() -> None:
    memory = SimpleNamespace(total=10 * MIB - 1, reserved=MIB)
    found = cards(card(0, nvmlDeviceGetMemoryInfo=lambda _version=None: memory))[0]
    assert (found.memory_mib, found.reserved_mib) == (8, 1)


@pytest.mark.parametrize(
    "error", [GONE_FUNCTION, pynvml.NVMLError_ArgumentVersionMismatch()], ids=["no function", "no version"]
)
def test_a_driver_that_does_not_say_what_it_reserves_counts_the_total(error: Exception) -> None:
    def memory(version: int | None = None) -> object:
        if version:
            raise error
        return SimpleNamespace(total=16 * MIB, used=0)

    found = cards(card(0, nvmlDeviceGetMemoryInfo=memory))[0]
    assert (found.memory_mib, found.reserved_mib) == (16, 0)


def test_unified_memory_counts_none_of_its_own() -> None:
    assert cards(card(0, nvmlDeviceGetMemoryInfo=pynvml.NVMLError_NotSupported()))[0].memory_mib == 0


@pytest.mark.parametrize(("mode", "mig"), [([1, 1], True), ([0, 1], False), ([1, 0], True)])
def test_the_current_mig_mode_counts_and_not_the_pending_one(mode: list[int], mig: bool) -> None:  # noqa: FBT001 # a table
    assert cards(card(0, nvmlDeviceGetMigMode=mode))[0].mig is mig


def test_what_a_card_does_not_support_is_not_there() -> None:
    unsupported = pynvml.NVMLError_NotSupported()
    (found,) = cards(card(0, nvmlDeviceGetMinorNumber=unsupported, nvmlDeviceGetMigMode=unsupported))
    assert (found.minor, found.mig, found.numa, found.links) == (None, False, None, {})


@pytest.mark.parametrize(
    ("answers", "numa"),
    [
        pytest.param({"nvmlDeviceGetNumaNodeId": 3}, 3, id="is a node"),
        pytest.param({"nvmlDeviceGetNumaNodeId": -1}, None, id="no node"),
        pytest.param({"nvmlDeviceGetNumaNodeId": GONE_FUNCTION}, None, id="old driver"),
        pytest.param({"nvmlDeviceGetMemoryAffinity": lambda _words, _scope: [0b10, 0]}, 1, id="near one"),
        pytest.param({"nvmlDeviceGetMemoryAffinity": lambda _words, _scope: [0, 0b1]}, 64, id="near a high one"),
        pytest.param({"nvmlDeviceGetMemoryAffinity": lambda _words, _scope: [0b11, 0]}, None, id="near two"),
    ],
)
def test_the_numa_node_is_that_of_the_card_or_the_one_nearest(answers: dict[str, object], numa: int | None) -> None:
    assert cards(card(0, **answers))[0].numa == numa


def test_texts_of_an_older_pynvml_are_bytes() -> None:
    (found,) = cards(card(0, nvmlDeviceGetName=b"Tesla T4", nvmlDeviceGetUUID=b"GPU-b"))
    assert (found.model, found.uuid) == ("Tesla T4", "GPU-b")


def test_a_pci_domain_has_four_digits_at_least() -> None:
    found = cards(
        card(0, nvmlDeviceGetPciInfo=SimpleNamespace(domain=9, bus=0xAB, device=0x1F)),
        card(1, nvmlDeviceGetPciInfo=SimpleNamespace(domain=0x10000, bus=1, device=0)),
    )
    assert [one.pci for one in found] == ["0009:ab:1f.0", "10000:01:00.0"]


def test_nvlinks_between_two_cards_are_counted() -> None:
    assert links(card(0, **nvlinks(pci(1), pci(1))), card(1, **nvlinks(pci(0), pci(0)))) == [{"1": "NV2"}, {"0": "NV2"}]


def test_cards_on_switches_reach_each_other_with_the_links_of_the_lesser() -> None:
    three, two = nvlinks("switch", "switch", "switch"), nvlinks("switch", "switch")
    assert links(card(0, **three), card(1, **two), card(2)) == [{"1": "NV2"}, {"0": "NV2"}, {}]


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, "PIX"),
        (pynvml.NVML_TOPOLOGY_SINGLE, "PIX"),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, "PXB"),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, "PHB"),
        (pynvml.NVML_TOPOLOGY_NODE, "NODE"),
        (pynvml.NVML_TOPOLOGY_SYSTEM, "SYS"),
    ],
)
def test_without_nvlink_the_pcie_level_counts(level: int, kind: str) -> None:
    ancestor = {"nvmlDeviceGetTopologyCommonAncestor": lambda _other: level}
    assert links(card(0, **ancestor), card(1, **ancestor)) == [{"1": kind}, {"0": kind}]


def test_a_driver_that_does_not_tell_what_is_at_the_other_end_tells_its_address() -> None:
    old = {**nvlinks(pci(1)), "nvmlDeviceGetNvLinkRemoteDeviceType": GONE_FUNCTION}
    assert links(card(0, **old), card(1)) == [{"1": "NV1"}, {}]


def test_a_card_is_no_worse_for_a_link_that_answers_nonsense() -> None:
    odd = {**nvlinks(pci(1)), "nvmlDeviceGetNvLinkRemotePciInfo": pynvml.NVMLError_Unknown()}
    assert links(card(0, **odd), card(1)) == [{}, {}]


def test_a_card_whose_uuid_cannot_be_one_does_not_lose_the_others() -> None:
    assert [found.uuid for found in cards(card(0, nvmlDeviceGetUUID="0"), card(1))] == ["GPU-1"]


def test_a_driver_that_goes_while_a_card_is_described_fails_as_a_whole() -> None:
    failing = card(1, nvmlDeviceGetName=pynvml.NVMLError_DriverNotLoaded())
    with pytest.raises(SourceFailed, match=r"card 1: NVML returned 'Driver Not Loaded': is the driver's kernel"):
        cards(card(0), failing)


@pytest.mark.parametrize("key", ["GPU-1", "0000:08:00.0"])
def test_a_card_is_found_by_its_name_too(key: str) -> None:
    source = NvmlSource(NvmlDouble(card(0), card(1)))
    source.open()
    assert (source.describe(key).index, source.describe(key).uuid) == (1, "GPU-1")


def test_a_split_card_is_asked_for_nothing_that_only_its_instances_have() -> None:
    denied = dict.fromkeys(
        ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetNvLinkState"), pytest.fail
    )
    (found,) = cards(card(0, nvmlDeviceGetMigMode=[1, 1], **denied))
    assert (found.mig, found.memory_mib, found.absent) == (True, 0, ())
