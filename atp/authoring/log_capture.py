"""LogCapture: records of the logging module become messages of the Instance that runs."""

import logging

from ..conf import settings
from .context import Context
from .log_text import describe

# Beside ATP's own: what django.tasks and its backport log of each attempt is in the log as events.
_KNOWN = ("django.tasks", "django_tasks")


class LogCapture(logging.Handler):
    """Writes the records that a handler logs into its Instance's log.

    ``context`` is the Context of the attempt that runs, None between two attempts.
    """

    def __init__(self, context: Context | None = None) -> None:
        super().__init__(settings.LOG_LEVEL)
        self.context = context
        self._busy = False

    def emit(self, record: logging.LogRecord) -> None:
        if self.context is None or self._busy:
            return
        if record.name.startswith("atp.") or record.name in _KNOWN:
            return
        self._busy = True
        try:
            text = f"{record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text}\n{describe(record.exc_info[1])}"
            self.context.log(text, record.levelno)
        except Exception:
            self.handleError(record)
        finally:
            self._busy = False
