"""The admission policies of `deploy` on a real API server, and the accounts that they tell apart.

    absent --in_force--> observed to refuse --removed--> observed not to

The API server takes a policy into use, and out of it, a little after it has been written: both are seen, by a write
that is not kept, before a test relies on it.
"""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import yaml

from config.protocol import names
from e2e.control_plane.admin import Access, Admin, ApiResponse, Json, UnexpectedAnswer
from e2e.programs import manifests
from e2e.programs.manifests import PLUGIN, SCHEDULER

# The original's accounts, of the same namespace. Source: gpushare-schd-extender.yaml of gpushare-scheduler-extender,
# device-plugin-rbac.yaml of gpushare-device-plugin.
OLD_EXTENDER: Final = "gpushare-schd-extender"
OLD_PLUGIN: Final = "gpushare-device-plugin"

ALLOCATION: Final = "gpushare-allocation"
PLUGIN_NODES: Final = "gpushare-device-plugin-nodes"
PLUGIN_PODS: Final = "gpushare-device-plugin-pods"
VISIBLE_DEVICES: Final = "gpushare-visible-devices"
REQUESTS: Final = "gpushare-requests"
SCHEDULER_NAME: Final = "gpushare-scheduler-name"
UNKNOWN_KEYS: Final = "gpushare-unknown-keys"

_OPTIONAL: Final = manifests.FOLDER.parent / "optional"
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = {
    "ValidatingAdmissionPolicy": f"{_REGISTRATION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_REGISTRATION}/validatingadmissionpolicybindings",
}
_COMMENTED_OUT: Final = re.compile(r'^(\s*)// (?="system:serviceaccount:)', re.MULTILINE)
_LOOK_EVERY_S: Final = 0.01
_WITHIN_S: Final = 15.0


def policies() -> list[Json]:
    """What an installation applies."""
    return manifests.documents("admission-policies.yaml")


def scheduler_name(*, migrating: bool = False) -> list[Json]:
    """What an installation applies beside them, and an operator may leave out. migrating: as the file says to do."""
    text = (manifests.FOLDER / "scheduler-name-policy.yaml").read_text(encoding="utf-8")
    return list(
        yaml.safe_load_all(text.replace('// "default-scheduler"', '"default-scheduler"') if migrating else text)
    )


def migrating() -> list[Json]:
    """The same after what the file says to do while migrating: the `//` before the original's accounts is taken off."""
    text = (manifests.FOLDER / "admission-policies.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(_COMMENTED_OUT.sub(r"\1", text)))


def optional(file: str) -> list[Json]:
    """Every object of a file that is applied on demand."""
    return list(yaml.safe_load_all((_OPTIONAL / file).read_text(encoding="utf-8")))


async def apply(admin: Admin, documents: Sequence[Json]) -> None:
    """Create policies and their bindings, or change what is there, which is in force all the while.

    Raises UnexpectedAnswer.
    """
    for document in documents:
        path, name = _POLICIES[document["kind"]], document["metadata"]["name"]
        answer = await admin.post(path, document)
        if answer.status == HTTPStatus.CONFLICT:
            answer = await admin.patch(f"{path}/{name}", document)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            message = f"{document['kind']} {name}: {answer.status} {answer.body.get('message')}"
            raise UnexpectedAnswer(message)


async def remove(admin: Admin, documents: Sequence[Json]) -> None:
    """Delete policies and their bindings, where they are there."""
    for document in reversed(documents):
        await admin.delete(f"{_POLICIES[document['kind']]}/{document['metadata']['name']}")


def refuses(answer: ApiResponse, policy: str) -> bool:
    """Whether this policy, and not RBAC or anything else, has refused."""
    refused = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request"
    return answer.status == HTTPStatus.FORBIDDEN and refused in answer.body.get("message", "")


async def until(policy: str, write: Callable[[], Awaitable[ApiResponse]], *, refused: bool) -> float:
    """Repeat a write, one that is not kept, until the policy refuses it, or no longer does.

    Returns the seconds that it took; TimeoutError after 15 s.
    """
    began_s = time.monotonic()
    async with asyncio.timeout(_WITHIN_S):
        while refuses(await write(), policy) is not refused:  # noqa: ASYNC110 - nothing tells when it is in force
            await asyncio.sleep(_LOOK_EVERY_S)
    return time.monotonic() - began_s


def pod(
    name: str,
    *,
    node: str = "",
    account: str = "",
    units: int = 1,
    scheduler: str = names.SCHEDULER_NAME,
    **metadata: object,
) -> Json:
    """A pod that asks for one unit; nobody runs it."""
    asked = {names.GPU_MEM: str(units)} if units else {}
    resources = {"limits": {**asked, "cpu": "1"}, "requests": {"cpu": "1"}}
    spec: Json = {"containers": [{"name": "c", "image": "none", "resources": resources}]}
    spec |= {"schedulerName": scheduler} if scheduler else {}
    spec |= {"nodeName": node} if node else {}
    spec |= {"serviceAccountName": account} if account else {}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def node(name: str, *, cordon: str) -> Json:
    """A node as the kubelet and the plugin have left it."""
    place = {"cpu": "8", "pods": "110", names.GPU_MEM: "16", names.GPU_COUNT: "1"}
    annotations = {
        names.INVENTORY: "{}",
        names.CORDON: cordon,
        names.CLEAR_HEALTH: "0",
        names.RELEASE: "0",
        "example.com/owner": "somebody",
    }
    metadata = {"name": name, "annotations": annotations, "labels": {"zone": "a"}}
    return {"metadata": metadata, "status": {"capacity": place, "allocatable": place}}


@dataclass(frozen=True, slots=True)
class PolicySite:
    """Two nodes, a pod on each with what the scheduler wrote, one that waits, and everybody who may try to write.

    clients: by the name of an account, and by `somebody` (an administrator), `plugin` (with a token for its pod on
    `{own}`), `plugin without a node` (a token for no pod).
    """

    namespace: str
    places: dict[str, str]
    clients: dict[str, Admin]

    async def send(self, who: str, method: str, path: str, body: Json) -> ApiResponse:
        """Have somebody write. path: with `{own}`, `{other}` for nodes and `{pods}` for the pods of this site."""
        client, at = self.clients[who], self.filled(path)
        match method:
            case "POST":
                return await client.post(at, self.filled_in(body))
            case "PUT":
                stored = (await client.get(at)).body
                return await client.put(at, _merged(stored, body))
        return await client.patch(at, self.filled_in(body))

    async def try_out(self, who: str, path: str, annotation: str) -> ApiResponse:
        """Have somebody write an annotation that is judged and not kept."""
        body = {"metadata": {"annotations": {annotation: "tried-out"}}}
        return await self.clients[who].patch(f"{self.filled(path)}?dryRun=All", body)

    async def read(self, path: str) -> Json:
        """An object as it is now."""
        return (await self.clients["somebody"].get(self.filled(path))).body

    def filled(self, text: str) -> str:
        """The text with the names of this site."""
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def filled_in(self, body: Json) -> Json:
        """The body with the names of this site."""
        filled: Json = yaml.safe_load(self.filled(yaml.safe_dump(body)))
        return filled


def _merged(stored: Json, body: Json) -> Json:
    return {
        key: _merged(stored.get(key, {}), value) if isinstance(value, dict) else value for key, value in body.items()
    } | {key: value for key, value in stored.items() if key not in body}


def accounts() -> list[Json]:
    """The accounts and their rights: ours as installed, with the optional one to patch pods; the original's as wide."""
    return [
        *manifests.documents("rbac.yaml", "device-plugin-rbac.yaml"),
        *optional("device-plugin-mark-assigned.yaml"),
        *_original(OLD_EXTENDER),
        *_original(OLD_PLUGIN),
    ]


def _original(account: str) -> list[Json]:
    return manifests.account(
        account,
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "update", "patch"]},
        {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
    )


@contextlib.asynccontextmanager
async def policy_site(admin: Admin, access: Access, namespace: str) -> AsyncIterator[PolicySite]:
    """Make the nodes, the pods and the clients of one test; gone afterwards, the pods with their namespace.

    The pods carry what the scheduler writes, so they are made by the scheduler's binding, as in life.
    """
    own, other = (f"{role}-{secrets.token_hex(3)}" for role in ("own", "other"))
    places = {"own": own, "other": other, "pods": f"/api/v1/namespaces/{namespace}/pods", "namespace": namespace}
    async with contextlib.AsyncExitStack() as undo:
        for name in (own, other):
            await admin.create("/api/v1/nodes", node(name, cordon="0"))
            undo.push_async_callback(admin.delete, f"/api/v1/nodes/{name}")
        plugin = await admin.create(
            f"/api/v1/namespaces/{manifests.NAMESPACE}/pods", pod(f"plugin-{own}", node=own, account=PLUGIN, units=0)
        )
        at = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/plugin-{own}"
        undo.push_async_callback(admin.delete, at, {"gracePeriodSeconds": 0})
        clients = {"somebody": admin}
        for who, account, bound_to in (
            *((account, account, None) for account in (SCHEDULER, OLD_EXTENDER, OLD_PLUGIN)),
            ("plugin", PLUGIN, plugin),
            ("plugin without a node", PLUGIN, None),
        ):
            bearer = f"Bearer {await manifests.token(admin, account, bound_to)}"
            clients[who] = await undo.enter_async_context(Admin(Access(access.url, access.tls, bearer)))
        site = PolicySite(namespace, places, clients)
        await _pods(site)
        yield site


async def _pods(site: PolicySite) -> None:
    for name, place in (("here", "{own}"), ("there", "{other}"), ("waiting", "")):
        labels = {"app": "a"}
        await site.clients["somebody"].create(site.filled("{pods}"), pod(name, labels=labels))
        if not place:
            continue
        answer = await site.send(SCHEDULER, "POST", f"{{pods}}/{name}/binding", binding(name, place, decided()))
        if answer.status != HTTPStatus.CREATED:
            message = f"the scheduler's binding of {name}: {answer.status} {answer.body.get('message')}"
            raise UnexpectedAnswer(message)


def decided() -> dict[str, str]:
    """Every key that the scheduler writes, with some value."""
    return dict.fromkeys(names.ALLOCATION_KEYS, "0") | {names.MEM_ASSIGNED: "false"}


def copied() -> Json:
    """What `kubectl get -o yaml` writes of a pod that runs, under another name."""
    return pod("new", node="{own}", annotations=decided())


def without_decision() -> str:
    """The end of the command that a refusal of such a copy names."""
    nulls = ",".join(f'"{key}":null' for key in decided())
    return f"""-p '{{"metadata":{{"annotations":{{{nulls}}}}},"spec":{{"nodeName":null}}}}' | kubectl create -f -"""


def binding(name: str, place: str, annotations: dict[str, str] | None = None) -> Json:
    """What binds a pod to a node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": place}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations or {}},
        "target": target,
    }


async def dry_run(admin: Admin, document: Json) -> ApiResponse:
    """Have the API server judge a policy or a binding as strictly as it can, and not keep it."""
    renamed = document["metadata"] | {"name": f"{document['metadata']['name']}-dry-run"}
    path = f"{_POLICIES[document['kind']]}?dryRun=All&fieldValidation=Strict"
    return await admin.post(path, document | {"metadata": renamed})
