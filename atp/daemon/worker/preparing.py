"""Preparing a worker's process for handlers: its log and its caches."""

import contextlib
import logging

from django.core.cache import caches


def open_root_logger(level):
    """Let the root logger pass the records to be captured. Its own handlers pass no more."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def share_caches():
    """Make Django's caches, which each context of variables would otherwise have of its own."""
    for alias in caches.settings:
        with contextlib.suppress(Exception):  # whoever uses it is told
            caches[alias]
