"""Webhooks: telling other systems how Instances ended, by signed requests (Standard Webhooks)."""

from .task import webhook

__all__ = ["webhook"]
