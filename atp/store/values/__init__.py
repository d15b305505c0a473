"""The values that cross the store's boundary: frozen, with named fields.

Times are aware datetimes. A daemon is named by its uuid, an Instance by its
integer key.
"""

from ...commands import CANCEL, PAUSE, RELEASE, RESUME, Cancelled
from ...commands import AttemptCommand as Ask
from .changes import Changes
from .claims import Claimed
from .daemons import NO_MISFITS, DaemonFacts, Lost, Misfits, Reconciled, Renewal, Swept
from .deliveries import Delivered, Refused
from .moves import Failed, Move
from .notes import Message, Note
from .outlooks import OpenTransaction, Outlook
from .responses import ResponseData
from .schedules import Planned, ScheduleSpec
from .scopes import Fill, Scope
from .sessions import Session
from .shapes import Shape
from .steps import Checkpoint, CursorMove, Settled
from .submissions import Submission
from .types import Parameters, Registration

__all__ = [
    "CANCEL",
    "NO_MISFITS",
    "PAUSE",
    "RELEASE",
    "RESUME",
    "Ask",
    "Cancelled",
    "Changes",
    "Checkpoint",
    "Claimed",
    "CursorMove",
    "DaemonFacts",
    "Delivered",
    "Failed",
    "Fill",
    "Lost",
    "Message",
    "Misfits",
    "Move",
    "Note",
    "OpenTransaction",
    "Outlook",
    "Parameters",
    "Planned",
    "Reconciled",
    "Refused",
    "Registration",
    "Renewal",
    "ResponseData",
    "ScheduleSpec",
    "Scope",
    "Session",
    "Settled",
    "Shape",
    "Submission",
    "Swept",
]
