"""Registering the Types that this daemon serves."""

from ... import queue as verbs
from ...verbs.registry import registry
from .chore import Chore

# A registration that somebody else has locked is tried again this often, in seconds.
REGISTER_AGAIN = 1.0


class Register(Chore):
    """Done once, and again for the Types whose registration somebody else has locked."""

    name, doing = "register", "registering Types"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._locked = ()

    def every(self):
        return REGISTER_AGAIN

    def is_due(self):
        return not self.core.identity.is_registered or (bool(self._locked) and super().is_due())

    def call(self):
        identity = self.core.identity
        types = self._locked or identity.types
        # What a Type was called formerly is registered already, or nothing waits there.
        own = [registry.get(name) for name in types if not registry.is_former(name)]
        return lambda: verbs.register(*own, by=identity.name)

    def done(self, result):
        self.core.identity.is_registered, self._locked = True, result.value
        self.core.timers.later(self.name, REGISTER_AGAIN)
