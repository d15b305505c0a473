"""The loggers of a process, intercepted: what is logged is handed to whoever calls the handlers.

All loggers are meant, not those of ATP alone: a daemon's process also logs through
Django's, and handlers of the root hear them all.
"""

import logging
from functools import partial

from . import records
from .guard import complaints, guarded, is_inside


class Loggers:
    """The loggers of this process."""

    def __init__(self):
        self._take = self._is_left = None
        self._replaced = []

    def intercept(self, take, is_left=None):
        """Have ``take(handle, logger, record)`` called for all that is logged from now on.

        Calling ``handle(record)`` is what the logger would have done. Where ``is_left()``
        is true, the loggers do as in any process.
        """
        self.stop()
        self._take, self._is_left = take, is_left
        for kind in _with_subclasses(logging.Logger):
            for name, wrapper in (("handle", self._handle), ("_log", self._log)):
                if name in vars(kind):
                    self._replace(kind, name, wrapper(vars(kind)[name]))
        if is_left is None:
            self._replace(logging.Logger, "isEnabledFor", records.is_enabled)

    def _replace(self, kind, name, function):
        self._replaced.append((kind, name, vars(kind)[name]))
        setattr(kind, name, function)

    def stop(self):
        """Let the loggers call their handlers themselves again."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def emit(self, logger, level, message, exc_info=None, extra=None):
        """Log a line of ATP itself. If it is intercepted, nothing of the project is called here."""
        record = records.made(logger, level, message, exc_info, extra)
        if not self._replaced:
            record = records.completed(logger, record)
        logger.handle(record)

    def _applies(self):
        return not (is_inside() or (self._is_left is not None and self._is_left()))

    def _handle(self, original):
        is_standard = records.is_standard(original)

        def handle(logger, record):
            if not self._applies():
                return original(logger, record)
            ours, is_all = records.handlers_of_atp(logger) if is_standard else ([], False)
            for handler in ours:
                if record.levelno >= handler.level:
                    guarded(handler.handle, record)
            if is_all:
                return None
            record._is_written = bool(ours)
            return self._take(partial(_handle, original, logger), logger, record)

        return handle

    def _log(self, original):
        is_standard = records.is_standard(original)

        def _log(logger, *args, **more):
            if is_standard:  # this function is no caller
                more["stacklevel"] = more.get("stacklevel", 1) + 1
            if not self._applies():
                return original(logger, *args, **more)
            try:
                original(logger, *args, **more)
            except Exception as error:  # of the factory of records, or of a logger's own class
                complaints.tell("a line could not be logged", error)

        return _log


def _handle(original, logger, record):
    original(logger, records.completed(logger, record))


def _with_subclasses(kind):
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


loggers = Loggers()
