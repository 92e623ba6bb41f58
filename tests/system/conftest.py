"""Log lines go nowhere in tests; those that read them capture them."""

from collections.abc import Iterator, Mapping
from typing import NoReturn

import pytest
import structlog


def _drop(_logger: object, _method: str, _event: Mapping[str, object]) -> NoReturn:
    raise structlog.DropEvent


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()
