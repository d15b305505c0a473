"""Recording moves and notes of attempts, in the portable store."""

import logging
from dataclasses import replace

from django.db import IntegrityError
from django.db.models import Value
from django.db.models.functions import Replace

from ... import messages
from ...commands import STACK_MARK
from ...exceptions import TaskGone
from ...models import Daemon, Instance, Kind, LogRecord, Response, Task
from ...states import Actor, Event, State
from ..values import count_kept_messages
from .enqueueing import ATTEMPTS
from .late import Late
from .mover import Mover


class Records(Late):
    def record(self, moves, *, daemon=None):
        if not moves:
            return []
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.atomic():
                    return self._record(moves, daemon)
            except IntegrityError:
                # Since we looked, another session took the unique key of a redriven Instance.
                if not remaining or all(move.event != Event.REDRIVE for move in moves):
                    raise
        raise AssertionError("unreachable")

    def _record(self, moves, daemon):
        keys = sorted({move.instance for move in moves})
        counts = daemon is None
        mover = Mover(self, self.now(), counts=counts).load(keys, revives=daemon is None)
        actor, holder = Actor.ANYONE, None
        if daemon is not None:
            actor, holder = Actor.HOLDER, self._key(daemon)
        ordered = mover.in_order(moves)
        refused = [m for m in ordered if not mover.apply(m, actor=actor, holder=holder)]
        mover.write()
        return refused if daemon is None else self.keep_late(refused)

    def _key(self, daemon):
        """Return the key of the daemon's row; 0, which holds nothing, if the row is gone."""
        return self.rows(Daemon).filter(uuid=daemon).values_list("pk", flat=True).first() or 0

    def conclude(self, move, *, note=None):
        # Always by the plain ORM, since the connection is the application's.
        with self.atomic():
            # Lock its node first, as all code that ends nodes does. Most Instances are no nodes.
            self.graphs.lock([move.instance])
            held = self.rows(Task).select_for_update(of=("self",)).claimed()
            task = held.filter(pk=move.instance, attempt=move.attempt).first()
            if task is None:
                raise TaskGone(f"The Task of attempt {move.attempt} was taken away.")
            if note is not None:
                self._say([note], {move.instance: State.RUNNING})
            mover = Mover(self, self.now()).load([move.instance])
            if not mover.apply(move, actor=Actor.HOLDER, holder=task.daemon_id):
                raise TaskGone(f"Attempt {move.attempt} is not {State.RUNNING} any more.")
            mover.write()

    def note(self, notes, *, daemon):
        if not notes:
            return []
        with self.atomic():
            locked = self.rows(Task).select_for_update(of=("self",)).held_by(daemon).order_by("pk")
            held = dict(
                locked.filter(pk__in=[n.instance for n in notes]).values_list("pk", "attempt")
            )
            # Of a note that may have been written before, take the part that is missing.
            pairs = [(note, self._unsaid(note) if note.again else note) for note in notes]
            accepted = [unsaid for note, unsaid in pairs if held.get(note.instance) == note.attempt]
            states = dict(
                self.rows(Instance)
                .filter(pk__in=[n.instance for n in accepted])
                .values_list("pk", "state")
            )
            self._say(accepted, states)
            late = [
                note
                for note, unsaid in pairs
                if held.get(note.instance) != note.attempt and (not note.again or unsaid.messages)
            ]
            self.keep_late(late)
            return late

    def _unsaid(self, note):
        """Return the note without the messages and files that have been stored already."""
        said = set(self._own_messages(note, Kind.STACK).values_list("time", "message"))
        response = self.rows(Response).filter(instance=note.instance).first()
        stored = {file["path"] for file in response.files} if response is not None else ()
        return replace(
            note,
            messages=tuple(m for m in note.messages if (m.time, m.text) not in said),
            files=tuple(file for file in note.files if file["path"] not in stored),
        )

    def _say(self, notes, states):
        self._write_progress(notes)
        self._write_messages(notes, states)
        self._answer_stacks(notes)
        self._leave_out(notes)
        self._write_files(notes)

    def _write_progress(self, notes):
        for note in notes:
            said = {}
            if note.progress is not None or note.progress_message is not None:
                said["progress"] = note.progress
            if note.progress_message is not None:
                said["progress_message"] = note.progress_message
            if said:
                self.rows(Instance).filter(pk=note.instance).update(**said)

    def _write_messages(self, notes, states):
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=note.instance,
                    time=message.time,
                    kind=message.kind,
                    state=states[note.instance],
                    attempt=note.attempt,
                    level=message.level,
                    who=note.who,
                    message=message.text,
                    detail=message.detail,
                )
                for note in notes
                for message in note.messages
            ]
        )

    def _answer_stacks(self, notes):
        """Remove the command for the stack from the Tasks of these notes that bring one."""
        keys = [n.instance for n in notes if any(m.kind is Kind.STACK for m in n.messages)]
        if keys:
            answered = Replace("request", Value(STACK_MARK), Value(""))
            self.rows(Task).filter(pk__in=keys).update(request=answered)

    def _leave_out(self, notes):
        """Delete the middle messages of attempts that wrote more than are kept."""
        first, last = count_kept_messages()
        for note in notes:
            if not note.left_out:
                continue
            own = self._own_messages(note)
            keys = own.values_list("pk", flat=True)
            # The first message to go becomes the record that says how many are missing.
            oldest_gone = keys.order_by("pk")[first : first + 1]
            oldest_kept = keys.order_by("-pk")[last - 1 : last]
            ends = [*oldest_gone, *oldest_kept]
            if len(ends) == 2 and ends[0] < ends[1]:
                own.filter(pk__gt=ends[0], pk__lt=ends[1]).delete()
                own.filter(pk=ends[0]).update(
                    kind=Kind.LEFT_OUT,
                    level=logging.WARNING,
                    message=messages.messages_left_out(note.left_out),
                    detail=str(note.left_out),
                )

    def _own_messages(self, note, *kinds):
        """Return the records of an attempt's messages, and the one that says some were left out.

        Include the records of these other ``kinds``.
        """
        return self.rows(LogRecord).filter(
            instance=note.instance,
            attempt=note.attempt,
            kind__in=(Kind.MESSAGE, Kind.LEFT_OUT, *kinds),
            who=note.who,
        )

    def _write_files(self, notes):
        for note in notes:
            if note.files:
                response, _ = self.rows(Response).get_or_create(instance_id=note.instance)
                response.files = [*response.files, *note.files]
                response.save(using=self.alias, update_fields=["files"])
