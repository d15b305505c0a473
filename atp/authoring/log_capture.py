"""LogCapture: records of the logging module become messages of the Instance that runs."""

import logging
from collections.abc import Callable

from ..conf import settings
from .context import Context
from .log_text import describe

# Ignored, as ATP's own loggers are: what these log of each attempt is in its log as events.
_KNOWN = ("django.tasks", "django_tasks")


class LogCapture(logging.Handler):
    """A logging handler that writes what a task's handler logs into the log of its Instance.

    ``context`` is the Context of the attempt that runs, None between two attempts.
    ``is_of_attempt()`` tells whether the current thread belongs to that attempt.
    ``on_stray(level, text)`` takes the records of threads that an earlier attempt left behind.
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        is_of_attempt: Callable[[], bool] = lambda: True,
        on_stray: Callable[[int, str], object] = lambda level, text: None,
    ) -> None:
        super().__init__(settings.LOG_LEVEL)
        self.context = context
        self._is_of_attempt, self._on_stray = is_of_attempt, on_stray
        self._busy = False

    def emit(self, record: logging.LogRecord) -> None:
        is_stray = not self._is_of_attempt()
        if self._busy or (self.context is None and not is_stray):
            return
        if record.name.startswith("atp.") or record.name in _KNOWN:
            return
        self._busy = True
        try:
            text = f"{record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text}\n{describe(record.exc_info[1])}"
            if is_stray:
                self._on_stray(record.levelno, text)
            elif self.context is not None:
                self.context.log(text, record.levelno)
        except Exception:
            self.handleError(record)
        finally:
            self._busy = False
