"""The Django admin for the queue, which shows rows and edits none of them.

No form sets a state. The admin's actions perform operations of the queue instead. Stored values
are shown as text, never as HTML (guarantee G14).
"""

from . import tables

__all__ = ["tables"]
