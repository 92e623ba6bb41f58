"""Command lines of the servers, and the files for their authentication.

Everything listens on 127.0.0.1. Each flag was tested with the versions in `servers/*/go.mod`.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.control_plane import pinned
from e2e.control_plane.pki import Issued, Pki

_LOOPBACK: Final = "127.0.0.1"
# Of the Service `kubernetes`, which nothing uses here. It must not be a loopback address. By default, the API server
# takes the machine's, which a machine without a network lacks. An address for documentation (RFC 5737).
_ADVERTISED: Final = "192.0.2.1"
# Without a controller manager, nothing creates the default ServiceAccount that the first plugin requires, removes the
# not-ready taint that the second one puts on every new node, or removes the finalizer that the third one puts on every
# claim and volume.
_NEED_CONTROLLERS: Final = "ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection"
_UNLIMITED: Final = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=3000",
    "--max-mutating-requests-inflight=1500",
    "--etcd-compaction-interval=0",
)


@dataclass(frozen=True, slots=True)
class EtcdSite:
    """Locations of etcd's data and listeners."""

    data: Path
    client_port: int
    peer_port: int

    @property
    def client_url(self) -> str:
        """URL for the API server."""
        return f"http://{_LOOPBACK}:{self.client_port}"


@dataclass(frozen=True, slots=True)
class AuditSite:
    """Files for auditing. policy: names the audited users. log: a JSON object per stage of each request, one a line."""

    policy: Path
    log: Path


@dataclass(frozen=True, slots=True)
class KubeletsSite:
    """Access of an API server to kubelets on this machine. hosts: its own /etc/hosts, with the names of the nodes."""

    hosts: Path
    client: Issued


@dataclass(frozen=True, slots=True)
class ApiServerSite:
    """Settings of an API server, apart from its program. issuer: of tokens, the same for a whole cluster."""

    etcd_url: str
    port: int
    issuer: str
    pki: Pki
    tokens: Path
    with_controllers: bool
    load_tuned: bool
    streamed_lists: bool
    pod_groups: bool
    audit: AuditSite | None
    kubelets: KubeletsSite | None


def etcd(program: Path, site: EtcdSite, *, load_tuned: bool) -> list[str]:
    """Return the command of one member without fsync, because its data is discarded with it."""
    peers = f"http://{_LOOPBACK}:{site.peer_port}"
    return [
        str(program),
        f"--data-dir={site.data}",
        "--unsafe-no-fsync",
        "--log-level=error",
        f"--listen-client-urls={site.client_url}",
        f"--advertise-client-urls={site.client_url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        *(["--quota-backend-bytes=8589934592"] if load_tuned else []),
    ]


def kube_apiserver(program: Path, site: ApiServerSite) -> list[str]:
    """Return the command with RBAC and Node authorization, static tokens, and client certificates of our own authority.

    load_tuned: without priority and fairness, limits and compaction, which would distort a measurement.
    """
    return [
        *(_with_hosts(site.kubelets.hosts) if site.kubelets else []),
        str(program),
        f"--etcd-servers={site.etcd_url}",
        f"--bind-address={_LOOPBACK}",
        f"--advertise-address={_ADVERTISED}",
        f"--secure-port={site.port}",
        f"--cert-dir={site.pki.folder}",
        f"--tls-cert-file={site.pki.server.certificate}",
        f"--tls-private-key-file={site.pki.server.key}",
        f"--service-account-issuer={site.issuer}",
        f"--service-account-key-file={site.pki.service_account_public_key}",
        f"--service-account-signing-key-file={site.pki.service_account_key}",
        "--authorization-mode=Node,RBAC",
        f"--token-auth-file={site.tokens}",
        f"--client-ca-file={site.pki.ca_certificate}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction",
        *([] if site.with_controllers else [f"--disable-admission-plugins={_NEED_CONTROLLERS}"]),
        *(_UNLIMITED if site.load_tuned else ["--storage-media-type=application/json"]),
        *([] if site.streamed_lists else ["--feature-gates=WatchList=false"]),
        *(_pod_groups() if site.pod_groups else []),
        *([f"--audit-policy-file={site.audit.policy}", f"--audit-log-path={site.audit.log}"] if site.audit else []),
        *(_to_kubelets(site.kubelets) if site.kubelets else []),
    ]


def _pod_groups() -> list[str]:
    """Return the flags that serve native PodGroups."""
    earlier = pinned.kubernetes_version().startswith("v1.36.")
    version, gates = ("v1alpha2", ",GangScheduling=true") if earlier else ("v1beta1", "")
    return [f"--feature-gates=GenericWorkload=true{gates}", f"--runtime-config=scheduling.k8s.io/{version}=true"]


def _with_hosts(hosts: Path) -> list[str]:
    """Return a command prefix that makes `hosts` the command's own /etc/hosts, and execs the command. Requires root.

    A node's address is that of the machine, and its kubelet listens on loopback only.
    """
    unshare, shell = (shutil.which(name) or name for name in ("unshare", "sh"))
    inside = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return [unshare, "--mount", "--propagation=private", "--", shell, "-c", inside, str(hosts)]


def _to_kubelets(site: KubeletsSite) -> list[str]:
    return [
        f"--kubelet-client-certificate={site.client.certificate}",
        f"--kubelet-client-key={site.client.key}",
        "--kubelet-preferred-address-types=Hostname",
    ]


def audit_policy(users: Sequence[str]) -> dict[str, Any]:
    """Return a policy that logs these users' requests and responses without bodies; for a watch, its begin and end."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(users)}, {"level": "None"}],
    }


def kube_controller_manager(program: Path, kubeconfig: Path, pki: Pki, port: int) -> list[str]:
    """Return the command with all default controllers, alone, each with the rights of its own ServiceAccount.

    Nodes without a kubelet never get a status; after the default of 60 s the controllers would taint them.
    """
    return [
        str(program),
        *_delegated(kubeconfig),
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={pki.service_account_key}",
        f"--root-ca-file={pki.ca_certificate}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--node-startup-grace-period=24h",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={pki.folder}",
        f"--flex-volume-plugin-dir={pki.folder / 'flex'}",
    ]


def kube_scheduler(program: Path, kubeconfig: Path, configuration: Path) -> list[str]:
    """Return the command, without a port; `configuration` names the kubeconfig for its work."""
    return [
        str(program),
        *_delegated(kubeconfig),
        f"--config={configuration}",
        "--secure-port=0",
    ]


def _delegated(kubeconfig: Path) -> list[str]:
    return [
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def scheduler_configuration(kubeconfig: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration without leader election; `overrides` win, key by key."""
    connection = {"kubeconfig": str(kubeconfig)} | dict(overrides.get("clientConnection", {}))
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **overrides,
        "clientConnection": connection,
    }


def kubeconfig(url: str, ca: Path, credentials: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return one cluster, one user and one context, all with the same name.

    credentials: `token`, or the paths `client-certificate` and `client-key`.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": name, "user": dict(credentials)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def token_file(tokens: Mapping[str, str], administrator: str) -> str:
    """Return CSV for --token-auth-file: token, user, uid, group. tokens: by user."""
    groups = {administrator: "system:masters"}
    return "".join(f"{token},{user},{user},{groups.get(user, '')}\n" for user, token in tokens.items())


def as_yaml(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return JSON, which is YAML and needs no library."""
    return json.dumps(document, indent=1)
