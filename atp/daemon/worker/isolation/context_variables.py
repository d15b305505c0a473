"""The context variables of each attempt: as they were before the first."""

import contextvars
import decimal

# The name of the variable in which the module decimal keeps its context.
_DECIMALS = "decimal_context"


class ContextVariables:
    """No attempt finds what another has set."""

    def __init__(self):
        # The decimal context is kept only if there was one: where there was none, each
        # attempt makes its own.
        self._context, self._decimals = None, None

    def own(self):
        """Return the context of one attempt."""
        if self._context is None:
            self._context = contextvars.copy_context()
            if any(variable.name == _DECIMALS for variable in self._context):
                self._decimals = self._context.run(decimal.getcontext).copy()
        own = self._context.copy()
        if self._decimals is not None:
            # A context holds these by reference.
            own.run(decimal.setcontext, self._decimals.copy())
        return own
