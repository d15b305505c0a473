"""The admin: everything to be seen, nothing to be edited.

A state is never assigned; the actions are verbs of the queue. What is
stored is shown as text and never as HTML (G14).
"""

from . import downstreams, errors, graphs, instances, rows, schedules

__all__ = ["downstreams", "errors", "graphs", "instances", "rows", "schedules"]
