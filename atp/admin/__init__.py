"""The admin shows the rows of the queue and edits none of them.

No page assigns a state: the actions are operations of the queue. Stored values are shown as
text, never as HTML (G14).
"""

from . import core, features

__all__ = ["core", "features"]
