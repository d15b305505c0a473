"""Registering the Types that this daemon serves."""

from ... import queue as verbs
from ...verbs.registry import registry
from .chore import Chore

# The registration of Types that somebody else has locked is tried again this often, in seconds.
REGISTER_AGAIN = 1.0


class Register(Chore):
    """The chore that registers Types once, and again those that somebody else has locked."""

    name, doing = "register", "registering Types"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._locked = ()

    def every(self):
        return REGISTER_AGAIN

    def is_due(self):
        if not self.core.identity.is_registered:
            return True
        return bool(self._locked or self.core.downstreams.unnamed()) and super().is_due()

    def call(self):
        identity = self.core.identity
        types = {*self._locked, *self.core.downstreams.unnamed()} or identity.types
        # The row of a former name exists already, or no Task waits under that name.
        self._own = {registry.get(name).identifier: registry.get(name) for name in types}
        return lambda: verbs.register(*self._own.values(), by=identity.name)

    def done(self, result):
        self.core.identity.is_registered, self._locked = True, result.value
        written = [type for name, type in self._own.items() if name not in self._locked]
        self.core.downstreams.named(name for type in written for name in type.names)
        self.core.timers.later(self.name, REGISTER_AGAIN)
