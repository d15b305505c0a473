"""The positions of sources, which move with the Instances of their records."""

from dataclasses import asdict

from django.db import IntegrityError
from django.db.models import F

from ....exceptions import InvalidOption
from ....models import Cursor, Tailer
from ....rows.log import MAX_DETAIL, Kind
from ....words import log_messages
from ....words.hints import did_you_mean
from ...contract.keeping import Tailers as Contract

# The number of shards that one statement names.
PORTION = 500
# The number of cursors among which a mistyped one is looked for.
LOOKED_AT = 1000


class Tailers(Contract):
    def __init__(self, store):
        self._store = store

    def positions(self, tailer):
        return dict(self._cursors(tailer).values_list("shard", "position"))

    def advance(self, tailer, moves, settled):
        now = self._store.now()
        # In one order for all, so that two attempts do not wait for each other.
        for move in sorted(moves, key=lambda each: each.shard):
            if move.before is not None:
                found = self._cursors(tailer).filter(shard=move.shard, position=move.before)
                if not found.update(position=move.after, moved=now, missing_since=None):
                    return False
        begun = [
            Cursor(tailer=tailer, shard=move.shard, position=move.after, moved=now)
            for move in sorted(moves, key=lambda each: each.shard)
            if move.before is None
        ]
        try:
            with self._store.atomic():
                self._store.rows(Cursor).bulk_create(begun)
        except IntegrityError:
            return False
        counts = asdict(settled)
        in_a_row = counts.pop("rejected_in_a_row")
        changes = {name: F(name) + count for name, count in counts.items()}
        if in_a_row is not None:
            changes["rejected_in_a_row"] = in_a_row
        self._rows(tailer).update(read_at=now, **changes)
        return True

    def begin(self, tailer, *, source):
        row = self._rows(tailer).first()
        if row is None:
            row = Tailer(identifier=tailer, source=_shortened(source), read_at=self._store.now())
            self._store.rows(Tailer).bulk_create([row], ignore_conflicts=True)
        return row.rejected_in_a_row

    def look(self, tailer, *, source, behind):
        facts = {"source": _shortened(source), "read_at": self._store.now(), "behind": behind}
        self._rows(tailer).update(**facts)

    def miss(self, tailer, missing, present, *, for_):
        now, cursors = self._store.now(), self._cursors(tailer)
        with self._store.atomic():
            for shards in _portions(present):
                found = cursors.filter(shard__in=shards, missing_since__isnull=False)
                found.update(missing_since=None)
            for shards in _portions(missing):
                found = cursors.filter(shard__in=shards, missing_since__isnull=True)
                found.update(missing_since=now)
            cursors.filter(missing_since__lt=now - for_).delete()

    def remove(self, tailer):
        self._cursors(tailer).delete()
        self._rows(tailer).delete()

    def seek(self, tailer, shard, position, *, who=""):
        with self._store.atomic():
            now = self._store.now()
            found = self._cursors(tailer).select_for_update().filter(shard=shard).first()
            if found is None:
                shards = self._cursors(tailer).values_list("shard", flat=True)[:LOOKED_AT]
                raise InvalidOption(
                    f"Tailer {tailer!r} has no cursor of shard {shard!r}."
                    f"{did_you_mean(shard, shards)}"
                )
            if position is None:
                self._cursors(tailer).filter(shard=shard).delete()
            else:
                self._cursors(tailer).filter(shard=shard).update(
                    position=position, moved=now, missing_since=None
                )
            message = log_messages.cursor_set(shard, found.position, position)
            facts = {"subject": f"type:{tailer}", "time": now, "who": who}
            self._store.log(Kind.CURSOR, message, detail=shard[:MAX_DETAIL], **facts)

    def _cursors(self, tailer):
        return self._store.rows(Cursor).filter(tailer=tailer)

    def _rows(self, tailer):
        return self._store.rows(Tailer).filter(identifier=tailer)


def _shortened(source):
    return source[: Tailer._meta.get_field("source").max_length]


def _portions(shards):
    every = sorted(shards)
    return [every[first : first + PORTION] for first in range(0, len(every), PORTION)]
