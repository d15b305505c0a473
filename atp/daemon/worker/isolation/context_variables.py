"""Isolation of context variables: each attempt gets those from before the first attempt."""

import contextvars
import decimal

# The name of the variable in which the module decimal keeps its context.
_DECIMALS = "decimal_context"


class ContextVariables:
    """The source of a fresh context for each attempt, without the values that others have set."""

    def __init__(self):
        # The decimal context is kept only if there was one. Otherwise each attempt makes its
        # own.
        self._context, self._decimals = None, None

    def own(self):
        """Return a new context for one attempt."""
        if self._context is None:
            self._context = contextvars.copy_context()
            if any(variable.name == _DECIMALS for variable in self._context):
                self._decimals = self._context.run(decimal.getcontext).copy()
        own = self._context.copy()
        if self._decimals is not None:
            # A context only refers to the decimal context: give each attempt a copy.
            own.run(decimal.setcontext, self._decimals.copy())
        return own
