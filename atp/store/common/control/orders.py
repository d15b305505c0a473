"""Orders to daemons, in the portable store."""

from .... import commands, messages
from ....exceptions import IllegalOrder, UnknownDaemon
from ....models import Daemon, Kind
from ..base import ORMBase


class Orders(ORMBase):
    def command(self, daemon, order, *, who=""):
        with self.atomic():
            rows = self.rows(Daemon)
            row = rows.select_for_update(no_key=True).filter(uuid=daemon).first()
            if row is None:
                raise UnknownDaemon(f"There is no daemon {daemon}: it has ended, or never existed.")
            now = self.now()
            if self.is_over(row, now):
                raise _illegal(row, order, "is lost")
            if order not in commands.allowed_commands(row.aim):
                raise _illegal(row, order, _doing(row))
            row.request = commands.REQUESTS[order]
            rows.filter(pk=row.pk).update(request=row.request)
            self.log(
                Kind.ORDER,
                messages.daemon_commanded(order),
                subject=f"daemon:{row}",
                time=now,
                who=who,
                detail=order,
            )
            return row


def _illegal(row, order, doing):
    told = f"Daemon {row} cannot be told to {order.label}: it {doing}."
    return IllegalOrder(told, order=order, mode=row.aim)


def _doing(row):
    """Return words for what a daemon does now, or has been told to do."""
    if row.mode == row.aim:
        return f"is {row.mode}"
    [told] = [order for order, (_, aim) in commands.MODE_CHANGES.items() if aim == row.aim]
    return f"has been told to {told.label}"
