"""Reconciling the Tasks in this daemon's memory with those that its new identity holds."""


class Reconciling:
    """The reconciliation after each join, and whenever old identities have been settled."""

    def __init__(self, core, attempts, renewal, orders):
        self._core = core
        self._attempts = attempts
        self._renewal = renewal
        self._orders = orders

    def joined(self, reconciled):
        """Reconcile with the Tasks that the new identity holds."""
        unrecorded = self._core.unrecorded
        self._core.counters.lost(reconciled.lost, "its dispatcher ended")
        self._core.statistics.restart(reconciled.position)
        self._renewal.joined()
        unrecorded.readmit()
        self._attempts.reconcile(reconciled.kept | reconciled.left)
        # A call that still records under the old identity may have locked these.
        for key in reconciled.left:
            unrecorded.doubt(key)
        unrecorded.set_aside(reconciled.left)
        self._core.queue.call()

    def settled(self, reconciled):
        """Reconcile after other sessions have unlocked Tasks that an earlier identity held."""
        self._orders.joined(reconciled.request)
        self._core.counters.lost(reconciled.lost, "its dispatcher ended")
        moved = self._core.identity.left - set(reconciled.left)
        self._core.unrecorded.readmit(moved)
        self._attempts.reconcile(reconciled.kept, moved)
