"""Recording what happened, in the portable store."""

from dataclasses import replace

from ...exceptions import TaskGone
from ...models import Daemon, Instance, LogRecord, Response, Task
from ...states import Actor, State
from .late import Late
from .moves import Moves


class Records(Late):
    def record(self, changes, *, daemon=None):
        if not changes:
            return []
        with self.atomic():
            moves = Moves(self, self.now()).load(sorted({c.instance for c in changes}))
            actor, holder = Actor.ANYONE, None
            if daemon is not None:
                actor, holder = Actor.HOLDER, self._key(daemon)
            refused = [
                change for change in changes if not moves.apply(change, actor=actor, holder=holder)
            ]
            moves.write()
            return refused if daemon is None else self.keep_late(refused)

    def _key(self, daemon):
        """The key of the daemon's row; 0, which holds nothing, if it is gone."""
        return self.rows(Daemon).filter(uuid=daemon).values_list("pk", flat=True).first() or 0

    def conclude(self, change, *, note=None):
        # In plain ORM, whatever the store: the connection is the application's.
        with self.atomic():
            held = self.rows(Task).select_for_update(of=("self",)).claimed()
            task = held.filter(pk=change.instance, attempt=change.attempt).first()
            if task is None:
                raise TaskGone(f"The Task of attempt {change.attempt} was taken away.")
            if note is not None:
                self._say([note], {change.instance: State.RUNNING})
            moves = Moves(self, self.now()).load([change.instance])
            if not moves.apply(change, actor=Actor.HOLDER, holder=task.daemon_id):
                raise TaskGone(f"Attempt {change.attempt} is not {State.RUNNING} any more.")
            moves.write()

    def note(self, notes, *, daemon):
        if not notes:
            return []
        with self.atomic():
            locked = self.rows(Task).select_for_update(of=("self",)).held_by(daemon).order_by("pk")
            held = dict(
                locked.filter(pk__in=[n.instance for n in notes]).values_list("pk", "attempt")
            )
            # Each with what is unsaid of it, where it may have been written before.
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
        """Return the note without the messages and files that are there already."""
        logs = self.rows(LogRecord).filter(instance=note.instance, attempt=note.attempt, event="")
        said = set(logs.filter(who=note.who).values_list("time", "message"))
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
                    state=states[note.instance],
                    attempt=note.attempt,
                    level=message.level,
                    who=note.who,
                    message=message.text,
                )
                for note in notes
                for message in note.messages
            ]
        )

    def _write_files(self, notes):
        for note in notes:
            if note.files:
                response, _ = self.rows(Response).get_or_create(instance_id=note.instance)
                response.files = [*response.files, *note.files]
                response.save(using=self.alias, update_fields=["files"])
