"""Keys and certificates of one throw-away control plane, made by the `openssl` program.

`openssl` (3.x, or LibreSSL 3) and not a Python package: it is on every machine that clones over
HTTPS, and it keeps the dependencies of the project to those that the scheduler itself needs.
The certificates pass Python's strict checks (RFC 5280 extensions), as a client of 3.13 asks.
"""

import datetime as dt
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DAYS: Final = "7"
# A client whose clock is put back finds them valid, too.
_VALID_BEFORE: Final = dt.timedelta(days=1)
_CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = gpushare-e2e
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, IP:10.0.0.1, DNS:localhost, DNS:kubernetes.default.svc
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[briefly]
database = {folder}/issued
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any_name
[any_name]
organizationName = optional
commonName = supplied
"""


class OpensslUnavailable(Exception):
    """`openssl` is not on PATH, or refused; the message says which."""


@dataclass(frozen=True, slots=True)
class Pki:
    """The folder of the files; all of them PEM, there once `make` has returned."""

    folder: Path

    @property
    def ca_certificate(self) -> Path:
        """The authority that clients trust."""
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """Signs certificates."""
        return self.folder / "ca.key"

    @property
    def openssl_configuration(self) -> Path:
        """What the certificates are like, by kind."""
        return self.folder / "cnf"

    @property
    def server_certificate(self) -> Path:
        """For 127.0.0.1 and localhost."""
        return self.folder / "tls.crt"

    @property
    def server_key(self) -> Path:
        """Of the server certificate."""
        return self.folder / "tls.key"

    @property
    def service_account_key(self) -> Path:
        """Signs ServiceAccount tokens."""
        return self.folder / "sa.key"

    @property
    def service_account_public_key(self) -> Path:
        """Verifies ServiceAccount tokens."""
        return self.folder / "sa.pub"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


def make(files: Pki) -> None:
    """Write a fresh authority, a server certificate and a token signing key.

    The folder exists and is private to the caller. Raises OpensslUnavailable.
    """
    config, ca = files.openssl_configuration, files.ca_certificate
    config.write_text(_CONFIG.format(folder=files.folder))
    for key in (files.ca_key, files.service_account_key):
        _make_key(key)
    request = ca.with_suffix(".csr")
    _openssl("req", "-new", "-config", config, "-sha256", "-key", files.ca_key, "-out", request)
    since = dt.datetime.now(dt.UTC) - _VALID_BEFORE
    until = since + dt.timedelta(days=int(_DAYS))
    _sign_for(files, "authority", request, ca, ("-selfsign", *_dates(until, since)))
    server = Issued(files.server_certificate, files.server_key)
    request = _requested(files, server, "/CN=kube-apiserver")
    _sign_for(files, "server", request, server.certificate, ("-cert", ca, *_dates(until, since)))
    public_key = files.service_account_public_key
    _openssl("ec", "-in", files.service_account_key, "-pubout", "-out", public_key)


def issue(files: Pki, name: str, user: str, group: str, lasts_s: int | None = None) -> Issued:
    """Write a client certificate for that user of that group; `name` goes into the files'. Raises OpensslUnavailable.

    The API server takes common name and organization for them. lasts_s: seconds from now; None: longer than any test.
    """
    issued = Issued(files.folder / f"{name}.crt", files.folder / f"{name}.key")
    subject = f"/O={group}/CN={user}"
    if lasts_s is None:
        _sign(files, "client", issued, subject)
    else:
        _sign_for_seconds(files, issued, subject, lasts_s)
    return issued


def _sign_for_seconds(files: Pki, issued: Issued, subject: str, lasts_s: int) -> None:
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=lasts_s)
    request = _requested(files, issued, subject)
    _sign_for(files, "client", request, issued.certificate, ("-cert", files.ca_certificate, *_dates(until)))


def _sign_for(files: Pki, kind: str, request: Path, certificate: Path, how: Sequence[str | Path]) -> None:
    """`openssl x509` of before 3.4 knows whole days from now on only, `openssl ca` any time."""
    (files.folder / "issued").touch()
    shaped_by = ("-config", files.openssl_configuration, "-name", "briefly", "-extensions", kind, "-notext", "-batch")
    signed_by = ("-keyfile", files.ca_key, "-outdir", files.folder, *how)
    _openssl("ca", *shaped_by, *signed_by, "-in", request, "-out", certificate)


def _dates(until: dt.datetime, since: dt.datetime | None = None) -> Sequence[str]:
    """since: None: now."""
    form = "%y%m%d%H%M%SZ"
    return "-enddate", until.strftime(form), *(("-startdate", since.strftime(form)) if since else ())


def _requested(files: Pki, issued: Issued, subject: str) -> Path:
    """Write a new key, and a request to sign it."""
    config, request = files.openssl_configuration, issued.certificate.with_suffix(".csr")
    _make_key(issued.key)
    _openssl("req", "-new", "-config", config, "-sha256", "-key", issued.key, "-subj", subject, "-out", request)
    return request


def _sign(files: Pki, kind: str, issued: Issued, subject: str) -> None:
    config, request = files.openssl_configuration, _requested(files, issued, subject)
    serial = str(1 + secrets.randbits(63))
    signed_by = ("-CA", files.ca_certificate, "-CAkey", files.ca_key, "-set_serial", serial, "-days", _DAYS, "-sha256")
    shaped_by = ("-extfile", config, "-extensions", kind, "-out", issued.certificate)
    _openssl("x509", "-req", "-in", request, *signed_by, *shaped_by)


def _make_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        message = "openssl is not on PATH: the local control plane takes its certificates from it"
        raise OpensslUnavailable(message)
    answer = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        message = f"openssl {arguments[0]}: {answer.stderr.strip()}"
        raise OpensslUnavailable(message)
