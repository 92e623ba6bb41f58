"""Page of a process: its certificate, its server, and the address for other replicas."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import structlog

from config.settings.page import PageSection
from scheduler.process.startup import StartupError
from scheduler.tools.page.access import Guard
from scheduler.tools.page.background import in_background
from scheduler.tools.page.leader import LeaderPage, own_url
from scheduler.tools.page.page_parts import SchedulerParts, page_parts
from scheduler.tools.page.server import PageServer, serve_page
from scheduler.tools.page.tls import ServerCertificate

log = structlog.get_logger()


class Replicas(Protocol):
    """Replicas of this scheduler, see `scheduler.leader.leadership.Leadership`."""

    @property
    def leader_page(self) -> str | None:
        """URL of the leader's page in the Lease, or None."""
        ...

    def show_page(self, url: str) -> None:
        """Publish the URL of our own page, once this replica leads."""
        ...


@asynccontextmanager
async def page_served(
    section: PageSection, of: SchedulerParts, access: Guard, replicas: Replicas | None, pod_ip: str
) -> AsyncIterator[None]:
    """Serve the page inside the block. Raises StartupError.

    replicas: None without leader election. pod_ip: where others reach this pod, "" if unknown.
    """
    try:
        certificate = ServerCertificate(Path(section.cert_file), Path(section.key_file)) if section.cert_file else None
        page = await _served(section, of, access, certificate, replicas)
    except OSError as error:
        message = f"cannot serve the page on {section.listen}: {error.strerror or error}"
        raise StartupError(message) from error
    url = own_url((section.listen_address[0], page.port), pod_ip) if certificate is not None else ""
    if replicas is not None and url:
        replicas.show_page(url)
    log.info("page.serves", listen=section.listen, tls=certificate is not None, shown_to_replicas=url)
    renewing = None if certificate is None else in_background("certificate", certificate.run())
    try:
        yield
    finally:
        if renewing is not None:
            renewing.cancel()
        await page.close()


async def _served(
    section: PageSection,
    of: SchedulerParts,
    access: Guard,
    certificate: ServerCertificate | None,
    replicas: Replicas | None,
) -> PageServer:
    if certificate is None:
        return await serve_page(page_parts(of, access), section.listen_address)
    leader = None
    if replicas is not None:
        leader = LeaderPage(lambda: replicas.leader_page, lambda: certificate.fingerprint, time.monotonic)
    return await serve_page(page_parts(of, access, leader), section.listen_address, certificate.context)
