"""Removing terminal Instances, in the portable store (RFC 14's retention)."""

import logging
import posixpath

from django.core.files.storage import FileSystemStorage, storages

from ...conf import settings
from ...models import Instance, Response, Type
from .base import ORMBase

logger = logging.getLogger("atp.store")

# How many of the Instances that one statement removes are named in the log.
NAMED = 100


class Removal(ORMBase):
    def purge(self, *, type=None, instances=None, limit=500, who=""):
        if instances is not None:
            return self._remove(self.rows(Instance).filter(pk__in=instances), limit, who)
        now = self.now()
        removed = 0
        types = self.rows(Type).filter(retention__isnull=False)
        if type is not None:
            types = types.filter(identifier=type)
        for row in types:
            over = self.rows(Instance).filter(type=row, finished__lt=now - row.retention)
            removed += self._remove(over.order_by("finished"), limit - removed, who)
            if removed >= limit:
                break
        return removed

    def _remove(self, selected, limit, who):
        count, stuck = 0, set()
        while count < limit:
            tried, kept = self._remove_chunk(selected.exclude(pk__in=stuck), limit - count, who)
            count += tried - len(kept)
            stuck |= kept
            if not kept:
                break
        return count

    def _remove_chunk(self, selected, limit, who):
        """Returns how many it found, and the keys of those that it could not remove."""
        with self.atomic():
            # A redrive locks the Instance too: one of the two comes first.
            locked = selected.terminal().select_for_update(skip_locked=True)
            keys = [instance.pk for instance in locked.only("pk")[:limit]]
            kept = self._remove_files(keys)
            removed = self.rows(Instance).filter(pk__in=[key for key in keys if key not in kept])
            if who:
                self._log_removal(removed, who)
            removed.delete()
        return len(keys), kept

    def _log_removal(self, removed, who):
        """Say of each Type what is removed: the Instances' own logs go with them."""
        uuids = {}
        for identifier, uuid in removed.values_list("type__identifier", "uuid").order_by("pk"):
            uuids.setdefault(identifier, []).append(str(uuid))
        for identifier, gone in uuids.items():
            named = ", ".join(gone[:NAMED]) + (", …" if len(gone) > NAMED else "")
            message = f"Instances removed: {len(gone)} ({named})"
            self.log(subject=f"type:{identifier}", time=self.now(), who=who, message=message)

    def _remove_files(self, keys):
        """Remove stored files before the rows that name them, so that none is forgotten.

        Returns the keys of the Instances whose files could not be removed.
        """
        storage = storages[settings.STORAGE]
        kept = set()
        for response in self.rows(Response).filter(pk__in=keys):
            try:
                for path in response.stored_paths:
                    storage.delete(path)
                    _remove_folder(storage, posixpath.dirname(path))
            except OSError as error:
                logger.warning("files of Instance %s cannot be removed: %s", response.pk, error)
                kept.add(response.pk)
        return kept


def _remove_folder(storage, folder):
    """Remove the folder of an Instance when it is empty; object stores have none."""
    if not isinstance(storage, FileSystemStorage):
        return
    try:
        storage.delete(folder)
    except OSError:
        pass  # not empty yet
