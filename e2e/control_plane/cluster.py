"""A private Kubernetes control plane on loopback ports, removed without a trace afterwards.

    new --enter--> RUNNING --exit--> gone: no process, no folder
                   RUNNING --stop_apiserver--> CUT OFF --start_apiserver--> RUNNING (cut_off does both)
                   RUNNING --kill_etcd--> WITHOUT A STORE --start_etcd--> RUNNING

Runs etcd and kube-apiserver, and kube-controller-manager or kube-scheduler on request. All files are in one temporary
folder; if this process is killed, its servers die with it and a waiting sweeper removes the folder. Enter it, and stop
and start its servers, from one thread that outlives them.

    python -m e2e.control_plane.cluster up [--controller-manager] [--scheduler]
"""

import argparse
import os
import secrets
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from e2e.control_plane import binaries, commands, pki, readiness
from e2e.control_plane.admin import Access
from e2e.control_plane.processes import Child, free_ports, start, sweep_when_gone

ADMIN: Final = "admin"
_CONTROLLERS: Final = "system:kube-controller-manager"
_SCHEDULER: Final = "system:kube-scheduler"
_MOST_API_SERVERS: Final = 2
_DEFAULT_NAMESPACE: Final = "/api/v1/namespaces/default"
_MADE_BY_CONTROLLERS: Final = (
    f"{_DEFAULT_NAMESPACE}/serviceaccounts/default",
    f"{_DEFAULT_NAMESPACE}/configmaps/kube-root-ca.crt",
)


class ControlPlane:
    """One control plane; enter it to start it."""

    def __init__(
        self,
        *,
        controller_manager: bool = False,
        scheduler: Mapping[str, Any] | None = None,
        load_tuned: bool = False,
        streamed_lists: bool = True,
        pod_groups: bool = False,
        audited: Sequence[str] = (),
        kubelets: Sequence[str] = (),
    ) -> None:
        """Configure the control plane without starting anything.

        scheduler: fields of a KubeSchedulerConfiguration, {} for its defaults; None: no kube-scheduler.
        load_tuned: flags that make the API server realistic in a measurement; objects are not stored as JSON in etcd,
        where tests read them.
        streamed_lists: False: lists come only in pages, as before Kubernetes 1.34.
        pod_groups: serve native PodGroups, from Kubernetes 1.36 on.
        audited: names of users whose requests are all in `audit_log`.
        kubelets: names of nodes on this machine, whose logs and containers clients can read; requires root.
        """
        self.folder = Path(tempfile.gettempdir()) / f"gpushare-e2e-{secrets.token_hex(6)}"
        self._pki = pki.in_folder(self.folder)
        self._with_controllers = controller_manager
        self._scheduler = scheduler
        self._load_tuned = load_tuned
        self._streamed_lists = streamed_lists
        self._pod_groups = pod_groups
        self._audited = tuple(audited)
        self._kubelets = tuple(kubelets)
        self._tokens = {user: secrets.token_hex(16) for user in (ADMIN, _CONTROLLERS, _SCHEDULER)}
        etcd_port, peer_port, self._controllers_port, *self._ports = free_ports(3 + _MOST_API_SERVERS)
        self._etcd = commands.EtcdSite(self.folder / "etcd", etcd_port, peer_port)
        self._programs: dict[str, Path] = {}
        self._servers: dict[str, Child] = {}
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        """Build missing programs, start, and return when ready; undo everything if that fails.

        Raises binaries.GoUnavailable, binaries.BuildFailed, pki.OpensslUnavailable, processes.Died, readiness.NotReady.
        """
        self._programs = binaries.ensure(self._wanted())
        with ExitStack() as undo:
            self._make_folder(undo)
            undo.callback(self._stop_all)
            self._start_all()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every server and remove the folder."""
        self._undo.close()

    @property
    def url(self) -> str:
        """URL of the API server, kept over a stop and start; of the first one if there are two."""
        return self._url(0)

    @property
    def urls(self) -> list[str]:
        """URLs of every API server that was started and not stopped."""
        return [self._url(which) for which in range(_MOST_API_SERVERS) if _api_server(which) in self._servers]

    @property
    def etcd_url(self) -> str:
        """URL of etcd, which does not authenticate clients."""
        return self._etcd.client_url

    @property
    def context(self) -> str:
        """The only context of every kubeconfig created here."""
        return "e2e"

    @property
    def ca_file(self) -> Path:
        """PEM of the authority that signed the API server's certificate."""
        return self._pki.ca_certificate

    @property
    def server_certificate(self) -> pki.Issued:
        """Certificate for other servers of this machine that the API server has to call."""
        return self._pki.server

    @property
    def audit_log(self) -> Path:
        """Log for `audit` to read; missing if nobody is audited."""
        return self.folder / "audit.log"

    @property
    def admin_token(self) -> str:
        """Bearer token of `admin`, who may do everything."""
        return self._tokens[ADMIN]

    @property
    def pids(self) -> dict[str, int]:
        """Process IDs of the running servers, by program."""
        return {name: child.pid for name, child in self._servers.items()}

    @property
    def children(self) -> list[Child]:
        """The servers that were started and not stopped, in the order of their starts."""
        return [*self._servers.values()]

    def access(self, which: int = 0) -> Access:
        """Return the administrator's access. which: of the API servers."""
        tls = ssl.create_default_context(cafile=str(self.ca_file))
        return Access(self._url(which), tls, f"Bearer {self.admin_token}")

    def kubeconfig_path(self, user: str = ADMIN) -> Path:
        """Return a file for `--kubeconfig`, removed with the cluster. Raises KeyError for an unknown user."""
        return self.kubeconfig_for(self._tokens[user], user)

    def kubeconfig_for(self, token: str, name: str) -> Path:
        """Write a kubeconfig for any bearer token from the token API; `name` becomes part of the file's name."""
        return self._write_kubeconfig({"token": token}, name)

    def node_kubeconfig_path(self, node: str) -> Path:
        """Return a kubeconfig for a kubelet with that node name, usable at any time. Raises pki.OpensslUnavailable."""
        return self.certificate_kubeconfig_path(f"system:node:{node}", "system:nodes")

    def certificate_kubeconfig_path(self, user: str, group: str, lasts_s: int | None = None) -> Path:
        """Return a kubeconfig with a client certificate, a new one each time. Raises pki.OpensslUnavailable.

        lasts_s: as `pki.issue`.
        """
        issued = pki.issue(self._pki, user.replace(":", "-"), user, group, lasts_s)
        paths = {"client-certificate": str(issued.certificate), "client-key": str(issued.key)}
        return self._write_kubeconfig(paths, user)

    def stop_apiserver(self, which: int = 0) -> None:
        """Stop the API server, so that it accepts no connections; etcd keeps its data."""
        self._servers.pop(_api_server(which)).stop()

    def start_apiserver(self, which: int = 0) -> None:
        """Serve again, at the same address; return when ready. which: 1 for one in addition to the first."""
        audit = commands.AuditSite(self.folder / "audit-policy.json", self.audit_log) if self._audited else None
        if audit is not None:
            audit.policy.write_text(commands.as_yaml(commands.audit_policy(self._audited)))
        site = commands.ApiServerSite(
            etcd_url=self._etcd.client_url,
            port=self._ports[which],
            issuer=self.url,
            pki=self._pki,
            tokens=self.folder / "tokens.csv",
            with_controllers=self._with_controllers,
            load_tuned=self._load_tuned,
            streamed_lists=self._streamed_lists,
            pod_groups=self._pod_groups,
            audit=audit,
            kubelets=self._kubelets_site() if self._kubelets else None,
        )
        command = commands.kube_apiserver(self._programs["kube-apiserver"], site)
        server = self._start(_api_server(which), command)
        answers = readiness.missing_at(self.access(which=which), "/readyz", _DEFAULT_NAMESPACE)
        readiness.wait_until(server, answers)

    @contextmanager
    def cut_off(self, *, kill: bool = False) -> Iterator[None]:
        """Stop the API server while the context lasts, and always restart it: other tests use the cluster afterwards.

        kill: end it as a crash would.
        """
        if kill:
            os.kill(self.pids[_api_server(0)], signal.SIGKILL)
        self.stop_apiserver()
        try:
            yield
        finally:
            self.start_apiserver()

    def _url(self, which: int) -> str:
        return f"https://127.0.0.1:{self._ports[which]}"

    def _kubelets_site(self) -> commands.KubeletsSite:
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {' '.join(self._kubelets)}\n")
        return commands.KubeletsSite(hosts, pki.issue(self._pki, "to-kubelets", "kube-apiserver", "system:masters"))

    def kill_etcd(self) -> None:
        """Send SIGKILL: the API server loses its store; the data stay."""
        self._servers.pop("etcd").kill()

    def start_etcd(self) -> None:
        """Start etcd, possibly after `kill_etcd`, with the existing data; return when it answers."""
        command = commands.etcd(self._programs["etcd"], self._etcd, load_tuned=self._load_tuned)
        store = self._start("etcd", command)
        self._servers = {"etcd": store} | self._servers  # the last one to be stopped
        readiness.wait_until(store, readiness.missing_at_http(self._etcd.client_port, "/health"))

    def start_scheduler(self, configuration: Mapping[str, Any]) -> Child:
        """Start kube-scheduler and return at once; it ends with the cluster, or with `stop`.

        configuration: as `scheduler` of the constructor.
        """
        program = binaries.ensure(["kube-scheduler"])["kube-scheduler"]
        kubeconfig = self.kubeconfig_path(_SCHEDULER)
        path = self.folder / "kube-scheduler.yaml"
        document = commands.scheduler_configuration(kubeconfig, configuration)
        path.write_text(commands.as_yaml(document))
        return self._start("kube-scheduler", commands.kube_scheduler(program, kubeconfig, path))

    def _write_kubeconfig(self, credentials: Mapping[str, str], name: str) -> Path:
        path = self.folder / f"{name.replace(':', '-').replace('/', '-')}.kubeconfig"
        path.write_text(commands.as_yaml(commands.kubeconfig(self.url, self.ca_file, credentials, self.context)))
        return path

    def _wanted(self) -> list[str]:
        names = ["etcd", "kube-apiserver"]
        names += ["kube-controller-manager"] if self._with_controllers else []
        names += ["kube-scheduler"] if self._scheduler is not None else []
        return names

    def _make_folder(self, undo: ExitStack) -> None:
        self.folder.mkdir(mode=0o700)
        sweeper = sweep_when_gone(self.folder)
        undo.callback(sweeper.communicate)  # closes its standard input and waits for its end

    def _start_all(self) -> None:
        pki.make(self._pki)
        (self.folder / "tokens.csv").write_text(commands.token_file(self._tokens, ADMIN))
        self.start_etcd()
        self.start_apiserver()
        if self._with_controllers:
            self._start_controllers()
        if self._scheduler is not None:
            self.start_scheduler(self._scheduler)

    def _start_controllers(self) -> None:
        command = commands.kube_controller_manager(
            self._programs["kube-controller-manager"],
            self.kubeconfig_path(_CONTROLLERS),
            self._pki,
            self._controllers_port,
        )
        controllers = self._start("kube-controller-manager", command)
        answers = readiness.missing_at(self.access(), *_MADE_BY_CONTROLLERS)
        readiness.wait_until(controllers, answers)

    def _start(self, name: str, command: list[str]) -> Child:
        home = str(self.folder)
        environment = {"PATH": os.defpath, "HOME": home, "TMPDIR": home}
        child = start(name, command, self.folder / f"{name}.log", environment)
        self._servers[name] = child
        return child

    def _stop_all(self) -> None:
        """Stop in reverse order of start, so that no server misses one that it depends on."""
        while self._servers:
            _, child = self._servers.popitem()
            child.stop()


def _api_server(which: int) -> str:
    """Return its name among the servers."""
    return "kube-apiserver" if which == 0 else f"kube-apiserver-{which}"


def main(arguments: list[str] | None = None) -> int:
    """Start a cluster, print how to reach it, and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m e2e.control_plane.cluster")
    up = parser.add_subparsers(required=True).add_parser("up", help=main.__doc__)
    up.add_argument("--controller-manager", action="store_true", help="run controllers too")
    up.add_argument("--scheduler", action="store_true", help="run kube-scheduler too")
    chosen = parser.parse_args(arguments)
    # Ctrl-C too: a shell that starts this in the background may have it ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    started_s = time.monotonic()
    scheduler: dict[str, Any] | None = {} if chosen.scheduler else None
    try:
        with ControlPlane(controller_manager=chosen.controller_manager, scheduler=scheduler) as cluster:
            sys.stderr.write(f"ready after {time.monotonic() - started_s:.1f} s; Ctrl-C ends it\n")
            sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig_path()}\n")
            sys.stdout.flush()
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
