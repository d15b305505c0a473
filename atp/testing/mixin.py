"""QueueMixin: the testing kit for Django's TestCase and TransactionTestCase."""

from __future__ import annotations

from typing import Any

from .kit import Kit


class QueueMixin:
    """Gives each test of a TestCase, or a TransactionTestCase, a testing kit: ``self.atp``."""

    atp: Kit

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        case: Any = self
        self.atp = case.enterContext(Kit())
