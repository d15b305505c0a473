"""Registering the Types that this daemon serves."""

from ... import queue as verbs
from ...operations.registry import registry
from .chore import Chore

# The registration of Types that somebody else has locked is tried again this often, in seconds.
REGISTER_AGAIN = 1.0


class Register(Chore):
    """The chore that registers Types once, and again those that somebody else has locked.

    Where the row of a Type lacks the downstream that the code names, it writes that.
    """

    name, doing = "register", "registering Types"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._locked, self._names = (), {}

    def every(self):
        return REGISTER_AGAIN

    def is_due(self):
        if not self.core.identity.is_registered:
            return True
        return bool(self._locked or self.core.downstreams.unnamed()) and super().is_due()

    def call(self):
        identity, store = self.core.identity, self.core.store
        self._names = {}
        if identity.is_registered and not self._locked:
            # Nothing else: the other parameters may be those of a newer release.
            names = {type: registry.downstream(type) for type in self.core.downstreams.unnamed()}
            self._names = names
            return lambda: store.types.name_downstreams(names, who=identity.name)
        types = self._locked or identity.types
        # The row of a former name exists already, or no Task waits under that name.
        own = [registry.get(name) for name in types if not registry.is_former(name)]
        return lambda: verbs.register(*own, by=identity.name)

    def done(self, result):
        if self._names:
            self.core.downstreams.named(self._names.keys() - result.value)
        else:
            self.core.identity.is_registered, self._locked = True, result.value
        self.core.timers.later(self.name, REGISTER_AGAIN)
