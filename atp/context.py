"""What a handler is given: who it is, and how it speaks while it runs."""

import logging
import math
import mimetypes
import posixpath
import re
import shutil
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from .conf import settings
from .exceptions import Interrupted, TooLarge

# Progress is sent at most this often, in seconds.
PROGRESS_EVERY = 0.1
MAX_PROGRESS_MESSAGE = 200
# The column is small, and logging's own levels end at 50.
MAX_LEVEL = 1000

# As long as its column; printable, since it is sent to browsers as it is.
_CONTENT_TYPE = re.compile(r"(?=.{3,127}\Z)[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?", re.ASCII)


@dataclass(frozen=True)
class Output:
    """What a handler returns to answer with text or bytes of a content type.

    ``content`` is str or bytes. Without ``content_type`` text is
    ``text/plain`` and bytes are ``application/octet-stream``.
    """

    content: str | bytes
    content_type: str = ""

    def __post_init__(self):
        if not isinstance(self.content, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"Output takes text or bytes, not {type(self.content).__name__}")
        if self.content_type:
            _check_content_type(self.content_type)


def _check_content_type(value):
    if not _CONTENT_TYPE.fullmatch(value):
        raise ValueError(f"{value!r} is not a content type")


def storage_path(uuid, attempt, name):
    """Return where a file of an attempt lies in Django's storage."""
    return f"atp/{uuid}/{attempt}-{name}"


class Context:
    """Passed to a handler as its first argument.

    ``uuid``, ``identifier``, ``type``, ``collection``, ``priority`` and
    ``attempt`` say what it works on. ``report(kind, …)`` takes what it says
    to the daemon; ``interruption()`` returns why it should stop, or None.
    """

    # As they are until the handler does something: one is made for every attempt.
    _scratch = None
    _progress_sent = 0.0
    _unsent_progress = None
    _records = 0
    _files = 0
    _is_over = False

    def __init__(self, claimed, *, report, interruption, scratch_root, halting=None):
        self._claimed = claimed
        self._report = report
        self._interruption = interruption
        self._halting = halting
        self._scratch_root = scratch_root

    @property
    def uuid(self):
        return self._claimed.uuid

    @property
    def identifier(self):
        return self._claimed.identifier

    @property
    def type(self):
        return self._claimed.type

    @property
    def collection(self):
        return self._claimed.collection

    @property
    def priority(self):
        return self._claimed.priority

    @property
    def attempt(self):
        return self._claimed.attempt

    def progress(self, done, total=None, message=""):
        """Say how far the work is: ``done`` of ``total``, or a fraction if no total is given.

        Cheap enough to be called often: it is sent ten times a second at most.
        """
        fraction = done / total if total else (done if total is None else 0.0)
        fraction = min(max(float(fraction), 0.0), 1.0)
        if math.isnan(fraction):
            fraction = None  # unknown
        message = clean(str(message) or (f"{done} of {total}" if total is not None else ""))
        self._unsent_progress = (fraction, message[:MAX_PROGRESS_MESSAGE])
        if time.monotonic() - self._progress_sent >= PROGRESS_EVERY:
            self.flush()

    def flush(self):
        """Send progress that was held back."""
        if self._unsent_progress is not None:
            self._report("progress", *self._unsent_progress)
            self._unsent_progress = None
            self._progress_sent = time.monotonic()
            if self._halting is not None and not self._is_over:
                self._halting.look()

    def log(self, message, level=logging.INFO):
        """Write a line to the Instance's log. ``level`` is one of the logging module's."""
        if isinstance(level, str):
            names = logging.getLevelNamesMapping()
            if level.upper() not in names:
                raise ValueError(f"log(level={level!r}): must be one of {', '.join(names)}")
            level = names[level.upper()]
        self._records += 1
        limit = settings.MAX_LOG_RECORDS
        if self._records > limit:
            if self._records == limit + 1:
                told = f"more than {limit} messages in one attempt: the rest is not kept"
                self._report("log", logging.WARNING, told)
            return
        level = min(max(int(level), 0), MAX_LEVEL)
        self._report("log", level, shorten(clean(str(message))))

    def check(self):
        """Raise Interrupted if the attempt has to end: call it now and then in long loops.

        If it has been put on hold, wait here until it may go on.
        """
        if self._interruption() is not None:
            raise Interrupted
        if self._halting is not None:
            self._halting.look()
            if self._interruption() is not None:
                raise Interrupted

    @contextmanager
    def paused(self, message=""):
        """Be PAUSED in the block: what the handler waits for there is not its own work.

        Another task has its place in the pool meanwhile, and the time does not count for
        the time-out. At the end of the block it waits for a place. Raises
        PausedInTransaction, and Interrupted if the attempt has to end.
        """
        if self._halting is None:
            yield
            return
        with self._halting.own(shorten(clean(str(message)))):
            yield
        if self._interruption() is not None:
            raise Interrupted

    @property
    def scratch(self):
        """A directory of this attempt's own, as a Path, removed when it ends."""
        if self._scratch is None:
            # Whatever tidies temporary files may have taken it away.
            self._scratch_root.mkdir(parents=True, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{self.uuid}-", dir=self._scratch_root))
        return self._scratch

    def end(self):
        """The handler has ended: send what was held back, and pause no more."""
        self._is_over = True
        self.flush()

    def remove_scratch(self):
        """Remove the scratch directory, if one was made."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def publish(self, file, name=None, content_type=None):
        """Store a result file and put its link into the Response; returns its description.

        ``file`` is a path, bytes, or a binary file object. The description is
        a dict with ``name``, ``path`` (in Django's storage), ``content_type``,
        ``size`` (bytes) and ``attempt``. Raises TooLarge beyond
        ``ATP["MAX_FILES"]`` files.
        """
        if self._files >= settings.MAX_FILES:
            raise TooLarge(f"publish(): one attempt may publish {settings.MAX_FILES} files.")
        if content_type:
            _check_content_type(content_type)
        if isinstance(file, (bytes, bytearray, memoryview)):
            opened = ContentFile(bytes(file))
        elif isinstance(file, (str, Path)):
            name = name or Path(file).name
            opened = File(Path(file).open("rb"))
        else:
            name = name or Path(getattr(file, "name", "") or "").name
            opened = File(file)
        if not name:
            raise ValueError("publish() needs a name for what is not a named file")
        storage = storages[settings.STORAGE]
        with opened:
            size = opened.size
            wanted = storage_path(
                self.uuid, self.attempt, storage.get_valid_name(posixpath.basename(name))
            )
            path = storage.save(wanted, opened)
        guessed = content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        description = {
            "name": clean(name),
            "path": path,
            "content_type": guessed,
            "size": size,
            "attempt": self.attempt,
        }
        self._files += 1
        self._report("file", description)
        return description


def clean(text):
    """Make text fit a database column: PostgreSQL takes no NUL, UTF-8 no lone surrogate."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def shorten(text):
    """Cut text that is too long for the log in the middle, where it matters least."""
    limit = settings.MAX_LOG_MESSAGE
    if len(text) <= limit:
        return text
    half = max((limit - 40) // 2, 1)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"


def describe(error):
    """Return an exception with its traceback as text for the log."""
    return shorten(clean("".join(traceback.format_exception(error)).rstrip()))


class LogCapture(logging.Handler):
    """Takes what a handler logs with the logging module into the Instance's log.

    ``context`` is that of the attempt which runs, None between two.
    """

    def __init__(self, context=None):
        super().__init__(settings.LOG_LEVEL)
        self.context = context
        self._busy = False

    def emit(self, record):
        if self.context is None or self._busy or record.name.startswith("atp."):
            return
        self._busy = True
        try:
            text = f"{record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text}\n{describe(record.exc_info[1])}"
            self.context.log(text, record.levelno)
        except Exception:
            self.handleError(record)
        finally:
            self._busy = False
