"""Keys and certificates of one throw-away control plane, created by the `openssl` program.

Uses `openssl` (3.x, or LibreSSL 3) rather than a Python package: every machine that clones over HTTPS has it, and the
project depends only on packages that the scheduler itself needs. The certificates pass Python's strict checks (RFC 5280
extensions), which clients require since 3.13.
"""

import datetime as dt
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

_LASTS: Final = dt.timedelta(days=7)
_DATE: Final = "%y%m%d%H%M%SZ"
# A client whose clock is set back also finds them valid.
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
[own]
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
    """`openssl` is not on PATH, or failed; the message says which."""


class Issued(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Pki(NamedTuple):
    """The folder and its files; all are PEM and exist once `make` has returned."""

    folder: Path
    ca_certificate: Path
    """The authority that clients trust."""
    ca_key: Path
    server: Issued
    """For 127.0.0.1 and localhost."""
    service_account_key: Path
    """Signs ServiceAccount tokens."""
    service_account_public_key: Path
    openssl_configuration: Path
    """What the certificates are like, by kind."""


def in_folder(folder: Path) -> Pki:
    """Return the files of that folder, whether they exist or not."""
    ca, ca_key, tls, tls_key, accounts, of_accounts, configuration = (
        folder / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key", "sa.key", "sa.pub", "cnf")
    )
    return Pki(folder, ca, ca_key, Issued(tls, tls_key), accounts, of_accounts, configuration)


def make(files: Pki) -> None:
    """Write a new authority, a server certificate and a token signing key.

    The folder exists and is private to the caller. Raises OpensslUnavailable.
    """
    config, ca = files.openssl_configuration, files.ca_certificate
    config.write_text(_CONFIG.format(folder=files.folder))
    for key in (files.ca_key, files.service_account_key):
        _make_key(key)
    request = ca.with_suffix(".csr")
    _openssl("req", "-new", "-config", config, "-sha256", "-key", files.ca_key, "-out", request)
    since = dt.datetime.now(dt.UTC) - _VALID_BEFORE
    _sign(files, "authority", request, ca, since=since)
    request = _requested(files, files.server, "/CN=kube-apiserver")
    _sign(files, "server", request, files.server.certificate, since=since)
    public_key = files.service_account_public_key
    _openssl("ec", "-in", files.service_account_key, "-pubout", "-out", public_key)


def issue(files: Pki, name: str, user: str, group: str, lasts_s: int | None = None) -> Issued:
    """Write a client certificate for a user and group; `name` is part of the file names. Raises OpensslUnavailable.

    The API server takes them from common name and organization. lasts_s: seconds from now; None: longer than any test.
    """
    issued = Issued(files.folder / f"{name}.crt", files.folder / f"{name}.key")
    request = _requested(files, issued, f"/O={group}/CN={user}")
    lasts = _LASTS if lasts_s is None else dt.timedelta(seconds=lasts_s)
    _sign(files, "client", request, issued.certificate, since=dt.datetime.now(dt.UTC), lasts=lasts)
    return issued


def _sign(
    files: Pki, kind: str, request: Path, certificate: Path, *, since: dt.datetime, lasts: dt.timedelta = _LASTS
) -> None:
    """Sign the request. `openssl x509` before 3.4 supports only whole days from now on, `openssl ca` any time."""
    (files.folder / "issued").touch()
    authority = ("-selfsign",) if certificate == files.ca_certificate else ("-cert", files.ca_certificate)
    signed_by = ("-keyfile", files.ca_key, "-outdir", files.folder, *authority)
    shaped_by = ("-config", files.openssl_configuration, "-name", "own", "-extensions", kind, "-notext", "-batch")
    dates = ("-startdate", since.strftime(_DATE), "-enddate", (since + lasts).strftime(_DATE))
    _openssl("ca", *shaped_by, *signed_by, *dates, "-in", request, "-out", certificate)


def _requested(files: Pki, issued: Issued, subject: str) -> Path:
    """Write a new key, and a request to sign it; return the request."""
    config, request = files.openssl_configuration, issued.certificate.with_suffix(".csr")
    _make_key(issued.key)
    _openssl("req", "-new", "-config", config, "-sha256", "-key", issued.key, "-subj", subject, "-out", request)
    return request


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
