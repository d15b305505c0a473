"""What a worker writes itself: checkpoints, positions of tailers."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError
from django.db.models import F, QuerySet

from ... import messages
from ...conf import settings
from ...exceptions import InvalidOption, InvalidStep, TaskGone, TooLarge
from ...models import MAX_DETAIL, Cursor, Kind, LogRecord, Step, Tailer, Task
from ...payload.codec import Payload
from ...states import State
from ...text import did_you_mean
from ..values import Checkpoint, CursorMove, Note, Settled
from .base import Part

if TYPE_CHECKING:
    from .store import ORMStore

# The checkpoints of handlers, on any database, by the application's connection.


class Steps(Part):
    """The checkpoints of handlers."""

    def find(self, instance: int, name: str) -> Checkpoint | None:
        row = self._rows(instance).filter(name=name).first()
        if row is None:
            return None
        if row.until is not None:
            raise InvalidStep(f"Step {name!r}: {_other_kind(row)} Give it another name.")
        return _checkpoint(row, None)

    def begin(
        self,
        instance: int,
        attempt: int,
        name: str,
        *,
        who: str = "",
        delay: timedelta | None = None,
    ) -> Checkpoint | None:
        with self.store.atomic():
            if not self._holds(instance, attempt):
                return None
            now = self.store.now()
            row = self._rows(instance).filter(name=name).first()
            if row is None:
                until = None if delay is None else now + delay
                row = self._add(instance, name=name, attempt=attempt, started=now, until=until)
            elif (row.until is None) != (delay is None):
                raise InvalidStep(f"Step {name!r}: {_other_kind(row)} Give it another name.")
            elif row.finished is None and row.until is None:
                if row.attempt != attempt:
                    self._log_repetition(row, attempt, now, who)
                row.attempt, row.started = attempt, now
                row.save(using=self.store.alias, update_fields=["attempt", "started"])
            return _checkpoint(row, now)

    def hold(self, instance: int, attempt: int) -> bool:
        return self._holds(instance, attempt)

    def keep(
        self,
        instance: int,
        attempt: int,
        name: str,
        payload: Payload,
        *,
        took: timedelta | None = None,
    ) -> bool:
        with self.store.atomic():
            if not self._holds(instance, attempt):
                return False
            now = self.store.now()
            facts = {"attempt": attempt, "finished": now, **payload._asdict()}
            if not self._rows(instance).filter(name=name).update(**facts):
                self._add(instance, name=name, started=now - took if took else now, **facts)
            return True

    def _rows(self, instance: int) -> QuerySet[Step]:
        return self.store.rows(Step).filter(instance=instance)

    def _holds(self, instance: int, attempt: int) -> bool:
        return holds(self.store, instance, attempt)

    def _add(self, instance: int, **facts: Any) -> Step:
        if self._rows(instance).count() >= settings.MAX_STEPS:
            raise TooLarge(f"step(): one Instance may have {settings.MAX_STEPS} steps.")
        return self.store.rows(Step).create(instance_id=instance, **facts)

    def _log_repetition(self, row: Step, attempt: int, now: datetime, who: str) -> None:
        self.store.rows(LogRecord).create(
            instance_id=row.instance_id,
            time=now,
            kind=Kind.STEP,
            state=State.RUNNING,
            attempt=attempt,
            level=logging.WARNING,
            who=who,
            message=messages.step_repeated(row.name, row.attempt),
            detail=row.name[: LogRecord._meta.get_field("detail").max_length],
        )


def holds(store: "ORMStore", instance: int, attempt: int) -> bool:
    """Lock the Task that this attempt holds; False if another session has locked it.

    It does not wait: the caller's open transaction would keep its own locks all the while. Raises
    TaskGone.
    """
    held = store.rows(Task).claimed().filter(pk=instance, attempt=attempt)
    if list(held.select_for_update(skip_locked=True, no_key=True).values_list("pk")):
        return True
    if not held.exists():
        raise TaskGone(f"The Task of attempt {attempt} was taken away.")
    return False


def _checkpoint(row: Any, now: datetime | None) -> Checkpoint:
    if row.until is not None:
        left = max(0.0, (row.until - now).total_seconds())
        return Checkpoint(is_done=not left, left=left)
    if row.finished is None:
        return Checkpoint(is_done=False)
    return Checkpoint(is_done=True, payload=Payload(row.format, row.data))


def _other_kind(row: Step) -> str:
    return "an earlier attempt slept under it." if row.until else "it is no sleep."


# The positions of sources, which move with the Instances of their records.

# The number of shards that one statement names.
PORTION = 500
# The number of cursors among which a mistyped one is looked for.
LOOKED_AT = 1000
# The shortest time between two log records about what a tailer cannot read.
SELDOM = timedelta(hours=1)


class Tailers(Part):
    """The positions of the sources outside of the queue."""

    def positions(self, tailer: str) -> dict[str, str]:
        return dict(self._cursors(tailer).values_list("shard", "position"))

    def advance(
        self, tailer: str, moves: Sequence[CursorMove], settled: Settled, *, who: str = ""
    ) -> bool:
        now = self.store.now()
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
            with self.store.atomic():
                self.store.rows(Cursor).bulk_create(begun)
        except IntegrityError:
            return False
        counts = asdict(settled)
        in_a_row = counts.pop("rejected_in_a_row")
        changes: dict[str, Any] = {name: F(name) + count for name, count in counts.items()}
        if in_a_row is not None:
            changes["rejected_in_a_row"] = in_a_row
        notes = [note for move in moves for note in move.notes]
        if notes:
            changes |= self._pass_over(tailer, notes, now, who)
        self._rows(tailer).update(read_at=now, **changes)
        return True

    def _pass_over(
        self, tailer: str, notes: Collection[Note], now: datetime, who: str
    ) -> dict[str, Any]:
        """Log what a tailer passes over; return the changes of its row."""
        facts: dict[str, Any] = {
            "subject": f"type:{tailer}",
            "time": now,
            "who": who,
            "level": logging.WARNING,
        }
        self.store.log_all(
            self.store.log_record(Kind.GAP, note.message, detail=_detail(note.count), **facts)
            for note in notes
        )
        lost = [note.count or 0 for note in notes if note.kind == "lost"]
        passed = sum(note.count or 0 for note in notes if note.kind != "lost")
        changes: dict[str, Any] = {"passed_over": F("passed_over") + passed} if passed else {}
        if lost:
            changes |= {"gaps": F("gaps") + len(lost), "lost": F("lost") + sum(lost)}
            changes["lost_at"] = now
        return changes

    def begin(self, tailer: str, *, source: str) -> int:
        row = self._rows(tailer).first()
        if row is None:
            row = Tailer(identifier=tailer, source=_shortened(source), read_at=self.store.now())
            self.store.rows(Tailer).bulk_create([row], ignore_conflicts=True)
        return row.rejected_in_a_row

    def look(
        self,
        tailer: str,
        *,
        source: str,
        behind: int | None,
        notes: Sequence[Note] = (),
        who: str = "",
    ) -> bool:
        text = "\n".join(note.message for note in notes)
        # One whose number is unknown is one at least.
        counts = [1 if note.count is None else note.count for note in notes if _is_skipped(note)]
        facts: dict[str, Any] = {"source": _shortened(source), "behind": behind, "error": ""}
        facts |= {"notes": text, "skipped": sum(counts)}
        with self.store.atomic():
            now = self.store.now()
            was = self._rows(tailer).values_list("notes", flat=True).first()
            self._rows(tailer).update(read_at=now, **facts)
            if not text and not was:
                return False
            return self._log_source(tailer, text, sum(counts), now, who)

    def _log_source(self, tailer: str, text: str, count: int, now: datetime, who: str) -> bool:
        """Log what a tailer cannot read, unless the log tells it already, or told of it lately."""
        subject = f"type:{tailer}"
        message = messages.unreadable_source(text)
        last = self.store.rows(LogRecord).about(subject).filter(kind=Kind.SOURCE).last()
        if last is None and not text:
            return False
        if last is not None and last.message == message:
            return False
        if last is not None and text and now - last.time < SELDOM:
            return False
        level = logging.WARNING if count else logging.INFO
        facts: dict[str, Any] = {"subject": subject, "time": now, "who": who, "level": level}
        self.store.log(Kind.SOURCE, message, detail=str(count), **facts)
        return True

    def stop(self, tailer: str, error: str) -> None:
        self._rows(tailer).update(error=error)

    def miss(
        self, tailer: str, missing: Collection[str], present: Collection[str], *, for_: timedelta
    ) -> None:
        now, cursors = self.store.now(), self._cursors(tailer)
        # Only what has changed is written, as a source may have a hundred thousand shards, and a
        # few statements at a time, as SQLite has one writer.
        known = cursors.filter(missing_since__isnull=False)
        since: dict[str, Any] = dict(known.values_list("shard", "missing_since"))
        missing = set(missing)
        for shards in _portions(since.keys() & set(present)):
            cursors.filter(shard__in=shards).update(missing_since=None)
        for shards in _portions(missing - since.keys()):
            cursors.filter(shard__in=shards).update(missing_since=now)
        old = (shard for shard in since.keys() & missing if since[shard] < now - for_)
        for shards in _portions(old):
            cursors.filter(shard__in=shards, missing_since__lt=now - for_).delete()

    def remove(self, tailer: str) -> None:
        self._cursors(tailer).delete()
        self._rows(tailer).delete()

    def seek(self, tailer: str, shard: str, position: str | None, *, who: str = "") -> None:
        with self.store.atomic():
            now = self.store.now()
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
            message = messages.cursor_set(shard, found.position, position)
            facts: dict[str, Any] = {"subject": f"type:{tailer}", "time": now, "who": who}
            self.store.log(Kind.CURSOR, message, detail=shard[:MAX_DETAIL], **facts)

    def _cursors(self, tailer: str) -> QuerySet[Cursor]:
        return self.store.rows(Cursor).filter(tailer=tailer)

    def _rows(self, tailer: str) -> QuerySet[Tailer]:
        return self.store.rows(Tailer).filter(identifier=tailer)


def _shortened(source: str) -> str:
    return source[: Tailer._meta.get_field("source").max_length]


def _detail(count: int | None) -> str:
    return "" if count is None else str(count)


def _is_skipped(note: Note) -> bool:
    return note.kind == "skipped"


def _portions(shards: Iterable[str]) -> list[list[str]]:
    every = sorted(shards)
    return [every[first : first + PORTION] for first in range(0, len(every), PORTION)]
