"""Which pods hold cards, by the API server, the kubelet's list and its checkpoint."""

from collections.abc import Sequence
from typing import Final

import pytest

from config.protocol import names
from deviceplugin.allocation.pods import MIRROR, NodePod
from deviceplugin.cdi.spec import device_name
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from deviceplugin.kubelet.containers import KubeletContainer
from deviceplugin.uninstall.facts import Holders, HoldingPod
from deviceplugin.uninstall.holders import holders
from tests.support.node_pods import node_pod

IDS: Final = frozenset({"u0", "u1"})
DEVICES: Final = frozenset({device_name(IDS)})
PLACED: Final = {names.ALLOCATION: '{"0":{"1":2}}', names.CARDS: '{"1":"GPU-b"}', names.UNIT_MIB: "1024"}


OTHERS: Final = frozenset({"u2"})
OF_INIT: Final = frozenset({"u3"})


def entry(uid: str, ids: frozenset[str] = IDS) -> CheckpointEntry:
    return CheckpointEntry(uid, "c0", names.GPU_MEM, ids)


LIVE: Final = node_pod("live", [2], annotations=PLACED, phase="Running")
LISTED: Final = KubeletContainer("ns", "gone", "c0", IDS)


@pytest.mark.parametrize(
    ("pods", "recorded", "listed", "expected"),
    [
        pytest.param([], (), (), Holders(), id="none"),
        pytest.param(
            [LIVE, node_pod("other", [0])],
            (entry("uid-live"),),
            (),
            Holders(pods=(HoldingPod("ns/live", "2 units of card 1 (GPU-b)"),), devices=DEVICES),
            id="a pod that runs",
        ),
        pytest.param(
            [node_pod("done", [2], phase="Succeeded")], (entry("uid-done"),), (), Holders(), id="one that has finished"
        ),
        pytest.param(
            [node_pod("ending", [1], terminating=True, phase="Running")],
            (),
            (),
            Holders(pods=(HoldingPod("ns/ending", "1 unit of a card that nobody has named"),)),
            id="one that ends, of no scheduler",
        ),
        pytest.param(
            [node_pod("static", [2], uid="of the API server", annotations={MIRROR: "kubelet"}, phase="Running")],
            (entry("kubelet"),),
            (),
            Holders(pods=(HoldingPod("ns/static", "2 units of a card that nobody has named"),), devices=DEVICES),
            id="a static pod, under the kubelet's UID",
        ),
        pytest.param([], (entry("dead"),), (), Holders(), id="an entry of a dead pod"),
        pytest.param(
            [],
            (entry("gone"),),
            (LISTED,),
            Holders(
                pods=(HoldingPod("ns/gone", "devices of the kubelet; the API server does not have the pod"),),
                devices=DEVICES,
            ),
            id="a pod that the API server does not have",
        ),
        pytest.param(
            [],
            (entry("dead or not"),),
            None,
            Holders(
                pods=(
                    HoldingPod("UID dead or not", "devices, by the kubelet's checkpoint; the kubelet does not answer"),
                ),
                devices=DEVICES,
            ),
            id="an entry, and the kubelet is silent",
        ),
        pytest.param(
            [node_pod("gone", [2], uid="before", phase="Failed")],
            (entry("before"), entry("gone", OTHERS), entry("init", OF_INIT)),
            (KubeletContainer("ns", "gone", "c0", OTHERS),),
            Holders(
                pods=(HoldingPod("ns/gone", "devices of the kubelet; the API server does not have the pod"),),
                devices=frozenset(map(device_name, (OTHERS, OF_INIT))),
            ),
            id="one that has the name of a finished pod, as an old answer has it, with an init container",
        ),
        pytest.param(
            [LIVE],
            (entry("uid-live"), entry("again", OTHERS)),
            (KubeletContainer("ns", "live", "c0", OTHERS),),
            Holders(
                pods=(
                    HoldingPod("ns/live", "2 units of card 1 (GPU-b)"),
                    HoldingPod("ns/live", "devices of the kubelet; the API server does not have the pod"),
                ),
                devices=frozenset({*DEVICES, device_name(OTHERS)}),
            ),
            id="one that has the name of a pod that lives, in an old answer",
        ),
        pytest.param(
            [node_pod("done", [2], phase="Succeeded")],
            (entry("uid-done"), entry("dead", OTHERS)),
            (KubeletContainer("ns", "done", "c0", IDS),),
            Holders(),
            id="a finished pod that the kubelet still lists",
        ),
        pytest.param(
            [LIVE],
            None,
            (),
            Holders(pods=(HoldingPod("ns/live", "2 units of card 1 (GPU-b)"),), devices=None),
            id="a checkpoint that cannot be read",
        ),
    ],
)
def test_who_holds_cards(
    pods: Sequence[NodePod],
    recorded: tuple[CheckpointEntry, ...] | None,
    listed: Sequence[KubeletContainer] | None,
    expected: Holders,
) -> None:
    assert holders(pods, recorded, listed) == expected
