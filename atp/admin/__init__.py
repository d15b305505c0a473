"""The admin: it shows the rows of the queue, and edits none of them.

No page assigns a state: the actions are verbs of the queue. Stored values are
shown as text and never as HTML (G14).
"""

from . import core, features

__all__ = ["core", "features"]
