"""The table of chores. To add a chore, write its class and add it here."""

from .counting import Count, CountFailures
from .dropping import Drop
from .graphs import Graphs
from .looking import Look
from .missing import Miss
from .planning import Plan
from .purging import Purge
from .reading_asks import ReadAsks
from .reading_sessions import ReadSessions
from .registering import Register
from .reporting import Report
from .scanning import Scan
from .sweeping import Sweep
from .telling import Measure, SignOfLife, Summarize
from .trimming import Trim

# The event loop does these itself.
ON_THE_LOOP = (SignOfLife, Summarize, Measure)
# The thread that claims does these when there is nothing to claim: the first one that is due.
CLAIMING = (Plan, Look, Sweep, Miss, Drop, Scan)
# The thread that records does these after a renewal, and before it records changes.
RECORDING = (Report, Register, ReadAsks, ReadSessions)
# These have a thread of their own.
PURGING = (CountFailures, Graphs, Trim, Count, Purge)
