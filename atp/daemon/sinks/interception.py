"""The interception of a process's loggers: its records go to a function instead of the handlers.

All loggers are intercepted, not those of ATP alone. A daemon's process also logs through
Django's loggers, and handlers of the root logger get the records of all of them.
"""

import logging
from functools import partial

from . import records
from .guard import complaints, guarded, is_inside


class Loggers:
    """The loggers of this process, which can be intercepted."""

    def __init__(self):
        self._take = self._is_left = None
        self._replaced = []

    def intercept(self, take, is_left=None):
        """Call ``take(handle, logger, record)`` for each record that is logged from now on.

        ``handle(record)`` does what the logger would have done. While ``is_left()`` is true,
        the loggers work as in any process.
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
        """End the interception: the loggers call their handlers themselves again."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def emit(self, logger, level, message, exc_info=None, extra=None):
        """Log a line of ATP itself. While loggers are intercepted, this calls no project code."""
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
            if is_standard:  # skip this function when looking for the caller
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
