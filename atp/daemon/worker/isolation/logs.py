"""The state of logging, which a handler may change: that of every logger.

To compare all loggers takes longer than a task. So cheap signs are checked first: Python clears
its cache of levels when a level is set, and its list of handlers when logging is configured. A
change without such a sign is noticed at the next full comparison, after EVERY seconds.
"""

import logging
import time

_ROOT = logging.root
_MANAGER = _ROOT.manager
# While this key is in the cache of the root logger, Python has not cleared the cache.
_MARK = "atp"
# All loggers are compared if the last full comparison is this many seconds ago.
EVERY = 0.01


class _Found:
    """The state of all loggers and their handlers at the time when this is made."""

    def __init__(self):
        self.disable, self.raises = _MANAGER.disable, logging.raiseExceptions
        self.loggers = {each: _facts(each) for each in _loggers()}
        self.handlers = {
            handler: (handler.level, list(handler.filters), handler.formatter)
            for _, _, _, handlers, _ in self.loggers.values()
            for handler in handlers
        }
        self._mark()

    def _mark(self):
        _ROOT._cache[_MARK] = True
        self._count = len(logging._handlerList)
        self._compared = time.monotonic()

    def is_as_it_was(self):
        """Tell whether the loggers and handlers of that time are unchanged; ignore new ones."""
        is_quiet = (
            _MARK in _ROOT._cache
            and len(logging._handlerList) == self._count
            and _MANAGER.disable == self.disable
            and time.monotonic() - self._compared < EVERY
        )
        if is_quiet:
            return True
        is_same = (
            (_MANAGER.disable, logging.raiseExceptions) == (self.disable, self.raises)
            and all(_facts(each) == facts for each, facts in self.loggers.items())
            and all(
                (handler.level, handler.filters, handler.formatter) == facts
                for handler, facts in self.handlers.items()
            )
        )
        if is_same:
            self._mark()
        return is_same

    def put_back(self):
        logging.disable(self.disable)
        logging.raiseExceptions = self.raises
        for each, (level, disabled, propagate, handlers, filters) in self.loggers.items():
            each.setLevel(level)
            each.disabled, each.propagate = disabled, propagate
            each.handlers[:], each.filters[:] = handlers, filters
        for handler, (level, filters, formatter) in self.handlers.items():
            handler.setLevel(level)
            handler.filters[:] = filters
            handler.formatter = formatter
        self._mark()


class _Now:
    """The present state; ``==`` compares it with a :class:`_Found`."""

    def __eq__(self, found):
        return found.is_as_it_was()

    __hash__ = None


def take():
    """Return the present state, to be compared with the one that :func:`found` returned."""
    return _Now()


def found():
    """Return the present state in a form that can be put back later."""
    return _Found()


def put_back(before):
    before.put_back()


def _loggers():
    known = [each for each in _MANAGER.loggerDict.values() if isinstance(each, logging.Logger)]
    return [_ROOT, *known]


def _facts(logger):
    return (
        logger.level,
        logger.disabled,
        logger.propagate,
        list(logger.handlers),
        list(logger.filters),
    )
