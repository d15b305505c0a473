"""Types in the portable store."""

from dataclasses import asdict

from ...conf import did_you_mean
from ...exceptions import TypeInUse, UnknownType
from ...models import Instance, Type
from .base import ORMBase


class Types(ORMBase):
    def register(self, registrations, *, who="", update=True):
        with self.atomic():
            now = self.now()
            wanted = {r.identifier: r for r in registrations}
            known = self.rows(Type).in_bulk(list(wanted), field_name="identifier")
            missing = [r for name, r in wanted.items() if name not in known]
            # Another process may register the same Types right now.
            self.rows(Type).bulk_create(
                [Type(**asdict(r), registered=now) for r in missing], ignore_conflicts=True
            )
            for registration in missing:
                self._log_type(registration.identifier, now, who, "registered")
            if update:
                self._update([(row, wanted[name]) for name, row in known.items()], now, who)

    def _update(self, pairs, now, who):
        for row, registration in pairs:
            differs = {
                name: value
                for name, value in asdict(registration).items()
                if getattr(row, name) != value
            }
            if differs:
                told = ", ".join(
                    f"{name}: {getattr(row, name)} → {value}" for name, value in differs.items()
                )
                self.rows(Type).filter(pk=row.pk).update(**differs, registered=now)
                self._log_type(row.identifier, now, who, f"changed: {told}")

    def _log_type(self, identifier, now, who, message):
        self.log(subject=f"type:{identifier}", time=now, who=who, message=message)

    def unregister(self, identifier, *, who=""):
        with self.atomic():
            rows = self.rows(Type).select_for_update().filter(identifier=identifier)
            row = rows.first()
            if row is None:
                names = self.rows(Type).values_list("identifier", flat=True)
                raise UnknownType(
                    f"No Type {identifier!r} is registered.{did_you_mean(identifier, names)}"
                )
            if self.rows(Instance).filter(type=row).exists():
                raise TypeInUse(
                    f"Type {identifier!r} cannot be removed: there are Instances of it."
                )
            row.delete(using=self.alias)
            self._log_type(identifier, self.now(), who, "unregistered")
