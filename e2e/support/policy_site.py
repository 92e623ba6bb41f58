"""The admission policies of `deploy` on a real API server, and the accounts that they distinguish.

    absent --in_force--> observed to deny --removed--> observed not to

The API server activates and deactivates a policy a little after the write. Before a test relies on either, a dry-run
write confirms it.
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

# The legacy components' accounts, in the same namespace. Source: gpushare-schd-extender.yaml of
# gpushare-scheduler-extender, device-plugin-rbac.yaml of gpushare-device-plugin.
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
    """Return the policies that an installation applies."""
    return manifests.documents("admission-policies.yaml")


def scheduler_name(*, migrating: bool = False) -> list[Json]:
    """Return the policy that an operator may leave out. migrating: edited as the file instructs."""
    text = (manifests.FOLDER / "scheduler-name-policy.yaml").read_text(encoding="utf-8")
    return list(
        yaml.safe_load_all(text.replace('// "default-scheduler"', '"default-scheduler"') if migrating else text)
    )


def migrating() -> list[Json]:
    """Return the policies after the file's migration step: the `//` before the legacy accounts is removed."""
    text = (manifests.FOLDER / "admission-policies.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(_COMMENTED_OUT.sub(r"\1", text)))


def optional(file: str) -> list[Json]:
    """Return every object of a file that is applied on demand."""
    return list(yaml.safe_load_all((_OPTIONAL / file).read_text(encoding="utf-8")))


async def apply(admin: Admin, documents: Sequence[Json]) -> None:
    """Create policies and their bindings, or change existing ones, which stay in force throughout.

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
    """Delete existing policies and their bindings."""
    for document in reversed(documents):
        await admin.delete(f"{_POLICIES[document['kind']]}/{document['metadata']['name']}")


def refuses(answer: ApiResponse, policy: str) -> bool:
    """Return whether this policy, not RBAC or anything else, has denied the request."""
    refused = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request"
    return answer.status == HTTPStatus.FORBIDDEN and refused in answer.body.get("message", "")


async def until(policy: str, write: Callable[[], Awaitable[ApiResponse]], *, refused: bool) -> float:
    """Repeat a dry-run write until the policy denies it, or no longer does.

    Return the seconds that it took. Raises TimeoutError after 15 s.
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
    """Return a pod that requests one unit; it is never run."""
    asked = {names.GPU_MEM: str(units)} if units else {}
    resources = {"limits": {**asked, "cpu": "1"}, "requests": {"cpu": "1"}}
    spec: Json = {"containers": [{"name": "c", "image": "none", "resources": resources}]}
    spec |= {"schedulerName": scheduler} if scheduler else {}
    spec |= {"nodeName": node} if node else {}
    spec |= {"serviceAccountName": account} if account else {}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def node(name: str, *, cordon: str) -> Json:
    """Return a node as the kubelet and the plugin leave it."""
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
    """Two nodes, a pod on each with the scheduler's annotations, one waiting pod, and a client of every account.

    clients: by account name, and by `somebody` (an administrator), `plugin` (with a token for its pod on `{own}`),
    `plugin without a node` (a token for no pod).
    """

    namespace: str
    places: dict[str, str]
    clients: dict[str, Admin]

    async def send(self, who: str, method: str, path: str, body: Json) -> ApiResponse:
        """Send a write as `who`. path: with `{own}`, `{other}` for nodes and `{pods}` for the pods of this site."""
        client, at = self.clients[who], self.filled(path)
        match method:
            case "POST":
                return await client.post(at, self.filled_in(body))
            case "PUT":
                stored = (await client.get(at)).body
                return await client.put(at, _merged(stored, body))
        return await client.patch(at, self.filled_in(body))

    async def try_out(self, who: str, path: str, annotation: str) -> ApiResponse:
        """Write an annotation as `who`, as a dry run."""
        body = {"metadata": {"annotations": {annotation: "tried-out"}}}
        return await self.clients[who].patch(f"{self.filled(path)}?dryRun=All", body)

    async def read(self, path: str) -> Json:
        """Return the object's current state."""
        return (await self.clients["somebody"].get(self.filled(path))).body

    def filled(self, text: str) -> str:
        """Return the text with the names of this site."""
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def filled_in(self, body: Json) -> Json:
        """Return the body with the names of this site."""
        filled: Json = yaml.safe_load(self.filled(yaml.safe_dump(body)))
        return filled


def _merged(stored: Json, body: Json) -> Json:
    return {
        key: _merged(stored.get(key, {}), value) if isinstance(value, dict) else value for key, value in body.items()
    } | {key: value for key, value in stored.items() if key not in body}


def accounts() -> list[Json]:
    """Return accounts with rights: ours as installed, plus the optional pod patch; legacy ones equally broad."""
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
    """Create the nodes, the pods and the clients of one test; they are removed afterwards.

    The pods get the scheduler's annotations by a binding from the scheduler, as in production.
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
    """Return every key that the scheduler writes, with arbitrary values."""
    return dict.fromkeys(names.ALLOCATION_KEYS, "0") | {names.MEM_ASSIGNED: "false"}


def copied() -> Json:
    """Return the output of `kubectl get -o yaml` for a running pod, with another name."""
    return pod("new", node="{own}", annotations=decided())


def without_decision() -> str:
    """Return the end of the command that the denial of such a copy suggests."""
    nulls = ",".join(f'"{key}":null' for key in decided())
    return f"""-p '{{"metadata":{{"annotations":{{{nulls}}}}},"spec":{{"nodeName":null}}}}' | kubectl create -f -"""


def binding(name: str, place: str, annotations: dict[str, str] | None = None) -> Json:
    """Return the object that binds a pod to a node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": place}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations or {}},
        "target": target,
    }


async def dry_run(admin: Admin, document: Json) -> ApiResponse:
    """Have the API server validate a policy or a binding as strictly as it can, as a dry run."""
    renamed = document["metadata"] | {"name": f"{document['metadata']['name']}-dry-run"}
    path = f"{_POLICIES[document['kind']]}?dryRun=All&fieldValidation=Strict"
    return await admin.post(path, document | {"metadata": renamed})
