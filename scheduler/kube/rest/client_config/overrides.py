"""kubectl's connection flags, which take precedence over the kubeconfig. Pure.

Source: client-go, tools/clientcmd/client_config.go (getAuthInfo, getCluster) and overrides.go.
"""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from scheduler.kube.rest.client_config.kubeconfig_file import Context, KubeconfigCluster, KubeconfigUser, Merged

# Name of the context, cluster and user that exist only in flags.
_OF_FLAGS: Final = "(flags)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values of the flags, "" and () if unset. cluster, user: names in the kubeconfig."""

    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = ""
    client_certificate: str = ""
    client_key: str = ""
    certificate_authority: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()

    def applied(self, merged: Merged, name: str) -> tuple[Merged, str]:
        """Return (the files with these values, the context to use). name: the context's name, "" for none.

        With a server, no context is needed.
        """
        if not name and self.server:
            name = _OF_FLAGS
        context = merged.contexts.get(name, Context() if name == _OF_FLAGS else None)
        if context is None:
            return merged, name
        cluster, user = self.cluster or context.cluster, self.user or context.user
        chosen = Context(
            cluster=cluster or (_OF_FLAGS if self.server else ""),
            user=user or (_OF_FLAGS if self.token or self.client_certificate or self.impersonate else ""),
            namespace=context.namespace,
        )
        clusters, users = dict(merged.clusters), dict(merged.users)
        if not cluster and self.server:
            clusters[_OF_FLAGS] = KubeconfigCluster()
        if not user and chosen.user:
            users[_OF_FLAGS] = KubeconfigUser()
        # `chosen` reports a name without an entry.
        if chosen.cluster in clusters:
            clusters[chosen.cluster] = self._of_cluster(clusters[chosen.cluster])
        if chosen.user in users:
            users[chosen.user] = self._of_user(users[chosen.user])
        return Merged(clusters, users, {**merged.contexts, name: chosen}, merged.current_context), name

    def _of_cluster(self, cluster: KubeconfigCluster) -> KubeconfigCluster:
        if self.server or self.tls_server_name:
            # With another server, the file's server name no longer applies: it is for the certificate of the file's
            # server.
            cluster = replace(cluster, server=self.server or cluster.server, tls_server_name=self.tls_server_name)
        if self.certificate_authority or self.insecure_skip_tls_verify:
            cluster = replace(
                cluster,
                certificate_authority=self.certificate_authority,
                certificate_authority_data="",
                insecure_skip_tls_verify=self.insecure_skip_tls_verify,
            )
        return cluster

    def _of_user(self, user: KubeconfigUser) -> KubeconfigUser:
        if self.token:
            user = replace(user, token=self.token, token_file="", username="", password="")
        if self.client_certificate:
            user = replace(user, client_certificate=self.client_certificate, client_certificate_data="")
        if self.client_key:
            user = replace(user, client_key=self.client_key, client_key_data="")
        if self.impersonate or self.impersonate_uid or self.impersonate_groups:
            user = replace(
                user,
                impersonate=self.impersonate or user.impersonate,
                impersonate_uid=self.impersonate_uid or user.impersonate_uid,
                impersonate_groups=self.impersonate_groups or user.impersonate_groups,
            )
        return user


NO_OVERRIDES: Final = Overrides()
