"""The pytest plugin with the fixtures ``atp`` and ``atp_daemon``. It needs pytest-django."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .daemon import DaemonProcess
    from .kit import Kit


@pytest.fixture
def atp(db: Any) -> Iterator[Kit]:
    """The testing kit, which checks the queue and runs Tasks.

    Add ``transactional_db`` if the test must not run inside a transaction.
    """
    from .kit import Kit

    with Kit() as kit:
        yield kit


@pytest.fixture
def atp_daemon(transactional_db: Any, atp: Kit) -> DaemonProcess:
    """A real atpd with two workers on the test's database, which ends with the test."""
    return atp.daemon()
