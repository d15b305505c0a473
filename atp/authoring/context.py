"""What handlers use: Context, Output, published files, and the capture of their log records."""

from __future__ import annotations

import logging
import math
import mimetypes
import os
import posixpath
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from uuid import UUID

from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from .. import folders
from ..conf import settings
from ..exceptions import Interrupted, InvalidOption, TooLarge
from ..graphs.builder import AdditionWriter, GraphContext, Results
from ..payload.binding import mask_texts
from ..store.values import Messages
from ..text import did_you_mean
from .logs import clean, describe_exception, shorten
from .steps import Keeper, Stepping

if TYPE_CHECKING:
    from ..store.values import Attempt


logger = logging.getLogger("atp.worker")

# The beginning of the names of the folders in SCRATCH_DIR.
SCRATCH_PREFIX = "atp-scratch-"
# The minimum time between two progress updates, in seconds.
PROGRESS_EVERY = 0.1
MAX_PROGRESS_MESSAGE = 200
# The column is small, and logging's own levels end at 50.
MAX_LEVEL = 1000
# LogCapture ignores these loggers and ATP's own, because the log has events for what they report.
_KNOWN = ("django.tasks", "django_tasks")
# At most as long as its column; printable, since it is sent to browsers unchanged.
_CONTENT_TYPE = re.compile(r"(?=.{3,127}\Z)[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?", re.ASCII)


# Context: the first argument of a handler, through which it communicates with the daemon.


class Halting(Protocol):
    """Pauses an attempt.

    ``look()`` pauses if an operator has commanded a pause. ``own()`` returns a context manager for
    a pause that the handler itself starts.
    """

    def look(self) -> None: ...

    def own(self, message: str) -> AbstractContextManager[None]: ...


class Context(Stepping, GraphContext):
    """The first argument of a handler, which represents the current attempt.

    The attributes ``uuid``, ``identifier``, ``type``, ``collection``, ``priority`` and ``attempt``
    (the number of the attempt, from 1) describe the Instance. The daemon's worker creates the
    Context with two functions: ``report(kind, …)`` sends a message to the daemon, and
    ``interruption()`` returns the reason why the attempt has to stop, or None.
    """

    # Defaults as class attributes make a new Context cheap. The first use of each replaces it.
    _scratch: Path | None = None
    _own_root: tuple[Path, int] | None = None
    _progress_sent = 0.0
    _unsent_progress: tuple[float | None, str] | None = None
    _messages: Messages | None = None
    _results: Results | None = None
    # The sensitive inputs as texts, which are masked in the log and the errors of the attempt.
    secrets: tuple[str, ...] = ()
    _files = 0
    _is_over = False

    def __init__(
        self,
        attempt: Attempt,
        *,
        report: Callable[..., object],
        interruption: Callable[[], object],
        scratch_root: Path,
        halting: Halting | None = None,
        keeper: Keeper | None = None,
        grower: AdditionWriter | None = None,
        worker: str = "",
    ) -> None:
        #: The name of the worker in the log, such as "host:pid worker 2".
        self.worker = worker
        self._attempt = attempt
        self._report = report
        self._interruption = interruption
        self._halting = halting
        self._keeper = keeper
        self._grower = grower
        self._scratch_root = scratch_root

    @property
    def key(self) -> tuple[int, int]:
        """The primary key of the Instance, and the number of the attempt."""
        return self._attempt.key

    @property
    def uuid(self) -> UUID:
        return self._attempt.uuid

    @property
    def identifier(self) -> str | None:
        return self._attempt.identifier

    @property
    def type(self) -> str:
        return self._attempt.type

    @property
    def collection(self) -> str:
        return self._attempt.collection

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the GPUs that this attempt may use; empty if its Type takes none.

        The variable ``CUDA_VISIBLE_DEVICES`` has the same names.
        """
        return self._attempt.devices

    @property
    def priority(self) -> int:
        return self._attempt.priority

    @property
    def attempt(self) -> int:
        return self._attempt.number

    @property
    def retries(self) -> int:
        """The number of earlier attempts that failed and were followed by a retry."""
        return self._attempt.retries

    @property
    def restarts(self) -> int:
        """The number of earlier attempts that were lost because the worker died or timed out."""
        return self._attempt.restarts

    @property
    def results(self) -> Results:
        """The outputs of other nodes of the graph, as in ``context.results["scene"]``."""
        if self._results is None:
            self._results = Results(self._attempt.instance)
        return self._results

    def progress(self, done: float, total: float | None = None, message: object = "") -> None:
        """Report how much of the work is done: ``done`` of ``total``.

        Without ``total``, ``done`` is a fraction from 0 to 1. You can call this method often,
        because at most ten progress updates a second are sent.
        """
        for name, value in (("done", done), ("total", total)):
            if isinstance(value, str):
                raise TypeError(
                    f"progress(): {name} is {value!r}, which is not a number; for text, use "
                    "message=…"
                )
        fraction: Any = done / total if total else (done if total is None else 0.0)
        fraction = min(max(float(fraction), 0.0), 1.0)
        if math.isnan(fraction):
            fraction = None  # unknown
        message = clean(str(message) or (f"{done} of {total}" if total is not None else ""))
        message = self.hidden(message)
        self._unsent_progress = (fraction, message[:MAX_PROGRESS_MESSAGE])
        if time.monotonic() - self._progress_sent >= PROGRESS_EVERY:
            self.flush()

    def flush(self) -> None:
        """Send the latest progress update now, if it has not been sent yet."""
        if self._unsent_progress is not None:
            self._report("progress", *self._unsent_progress)
            self._unsent_progress = None
            self._progress_sent = time.monotonic()
            if self._halting is not None and not self._is_over:
                self._halting.look()

    def hidden(self, text: str) -> str:
        """Return text after replacing each value of a sensitive input by a mask."""
        return mask_texts(text, self.secrets) if self.secrets else text

    def log(self, message: object, level: int | str = logging.INFO) -> None:
        """Write a message to the Instance's log. ``level`` is a level of the logging module."""
        if isinstance(level, str):
            names = logging.getLevelNamesMapping()
            if level.upper() not in names:
                raise ValueError(f"log(level={level!r}): must be one of {', '.join(names)}")
            level = names[level.upper()]
        if self._messages is None:
            self._messages = Messages(self._report)
        level = min(max(int(level), 0), MAX_LEVEL)
        self._messages.add(level, shorten(self.hidden(clean(str(message)))))

    def check(self) -> None:
        """Raise Interrupted if the attempt has to end; call this method regularly in long loops.

        If an operator has paused the Instance, this waits until somebody resumes the Instance.
        """
        self.end_if_asked()
        if self._halting is not None:
            self._halting.look()
            self.end_if_asked()

    def end_if_asked(self) -> None:
        """Raise Interrupted if the attempt has to end. Unlike :meth:`check`, this never waits."""
        if self._interruption() is not None:
            raise Interrupted

    @contextmanager
    def paused(self, message: object = "") -> Iterator[None]:
        """Return a context manager for a block in which the handler waits for another system.

        Inside the block the Instance is PAUSED. Another Task can use this worker's place in the
        pool, and the time does not count towards the time-out. At the end of the block the handler
        waits for a free place. Raises PausedInTransaction, and Interrupted if the attempt has to
        end.
        """
        if self._halting is None:
            yield
            return
        with self._halting.own(shorten(self.hidden(clean(str(message))))):
            yield
        self.end_if_asked()

    @property
    def scratch(self) -> Path:
        """A private temporary directory, as a Path. ATP removes it when the attempt ends."""
        if self._scratch is None:
            root = self._private_root()
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{self.uuid}-", dir=root))
        return self._scratch

    def _private_root(self) -> Path:
        """Return the folder for scratch directories, or a new folder if the usual one is unsafe.

        A folder is unsafe if other users can write to it. For example, a program that cleans up
        temporary files can remove the folder, and another user can then create it.
        """
        top, root = Path(settings.SCRATCH_DIR), self._scratch_root
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        levels = [each for each in (*reversed(root.parents), root) if top in each.parents]
        if folders.is_strange(top):
            refused, top = top, top.parent
        else:
            refused = next((each for each in levels if not folders.make_private(each)), None)
        if refused is None:
            return root
        self._own_root = folders.make_locked_folder(top, SCRATCH_PREFIX)
        text = (
            f"{refused}, the folder for scratch directories, is not this user's alone: "
            f"{folders.describe_owner(refused)}. This attempt uses {self._own_root[0]} instead."
        )
        logger.warning("%s: %s", self.uuid, text)
        self.log(text, logging.WARNING)
        return self._own_root[0]

    def dask(self, executor: str = "dask") -> AbstractContextManager[Any]:
        """Connect to the Dask cluster of an executor: ``with context.dask() as client:``.

        The handler runs here, and what it submits runs there. The cluster forgets what has not run
        when the ``with`` ends, or the process of the attempt, however that ends. ``executor`` is a
        name in the setting EXECUTORS. Raises InvalidOption if that is no Dask, and EngineAway.
        """
        options = settings.EXECUTORS.get(executor, {})
        if "ADDRESS" not in options:
            known = did_you_mean(executor, settings.EXECUTORS)
            raise InvalidOption(
                f"executor={executor!r}: ATP['EXECUTORS'] has no ADDRESS for it.{known}"
            )
        from ..executors.dask import Dask  # only for handlers that use it

        return Dask.client(options["ADDRESS"], f"atp-{self.uuid}")

    def end(self) -> None:
        """Send all unsent messages after the handler has ended, and ignore pauses from now on."""
        self._is_over = True
        # Most have none.
        if self._messages is not None:
            self.say_all()
        if self._unsent_progress is not None:
            self.flush()

    def say_all(self) -> None:
        """Send all log messages that have not been sent yet."""
        if self._messages is not None:
            self._messages.end()

    @property
    def has_scratch(self) -> bool:
        """True if the handler has used a scratch directory."""
        return self._scratch is not None or self._own_root is not None

    def remove_scratch(self) -> None:
        """Remove the scratch directory, if the handler has used one."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self._own_root is not None:
            shutil.rmtree(self._own_root[0], ignore_errors=True)
            os.close(self._own_root[1])
            self._own_root = None

    def publish(
        self,
        file: str | Path | bytes | bytearray | memoryview | IO[bytes],
        name: str | None = None,
        content_type: str | None = None,
    ) -> dict[str, Any]:
        """Store a result file, add a link to the Response, and return a description of the file.

        ``file`` is a path, bytes, or a binary file object. The description is a dict with ``name``,
        ``path`` (in Django's storage), ``content_type``, ``size`` (bytes) and ``attempt``. Raises
        TooLarge if the attempt publishes more than ``ATP["MAX_FILES"]`` files.
        """
        if self._files >= settings.MAX_FILES:
            raise TooLarge(f"publish(): one attempt may publish {settings.MAX_FILES} files.")
        if content_type:
            check_content_type(content_type)
        name, opened = open_file(file, name)
        with opened:
            size = size_of(opened)
            valid = storages[settings.STORAGE].get_valid_name(posixpath.basename(name))
            path = store_file(storage_path(self.uuid, self.attempt, valid), opened)
            size = storages[settings.STORAGE].size(path) if size is None else size
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


# LogCapture: records of the logging module become messages in the log of the Instance.


class LogCapture(logging.Handler):
    """A handler for the logging module that copies log records to the log of the running Instance.

    ``context`` is the Context of the running attempt, None between two attempts.
    ``is_of_attempt()`` returns True if the current thread belongs to that attempt.
    ``on_stray(level, text)`` gets the records from threads that an earlier attempt left behind.
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        is_of_attempt: Callable[[], bool] = lambda: True,
        on_stray: Callable[[int, str], object] = lambda level, text: None,
    ) -> None:
        super().__init__(settings.LOG_LEVEL)
        self.context = context
        self._is_of_attempt, self._on_stray = is_of_attempt, on_stray
        # The threads that are writing a record now: what that logs itself is left out.
        self._busy = threading.local()

    def current(self) -> Context | None:
        """Return the Context of the attempt that has logged a record."""
        return self.context

    def emit(self, record: logging.LogRecord) -> None:
        is_stray, context = not self._is_of_attempt(), self.current()
        if getattr(self._busy, "here", False) or (context is None and not is_stray):
            return
        if record.name.startswith("atp.") or record.name in _KNOWN:
            return
        self._busy.here = True
        try:
            text = f"{record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text}\n{describe_exception(record.exc_info[1])}"
            if is_stray:
                self._on_stray(record.levelno, text)
            elif context is not None:
                context.log(text, record.levelno)
        except Exception:
            self.handleError(record)
        finally:
            self._busy.here = False


# Output: text or bytes that a handler returns with a content type.


@dataclass(frozen=True)
class Output:
    """Text or bytes with a content type, for a handler to return.

    ``content`` is str or bytes. The default of ``content_type`` is ``text/plain`` for text and
    ``application/octet-stream`` for bytes.
    """

    content: str | bytes
    content_type: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.content, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"Output takes text or bytes, not {type(self.content).__name__}")
        if self.content_type:
            check_content_type(self.content_type)


def check_content_type(value: str) -> None:
    """Raise ValueError unless ``value`` is a valid content type, such as "text/csv"."""
    if not _CONTENT_TYPE.fullmatch(value):
        raise ValueError(f"{value!r} is not a content type")


# The files of an attempt in Django's storage: published files and large responses.


def open_file(
    file: str | Path | bytes | bytearray | memoryview | IO[bytes], name: str | None = None
) -> tuple[str, File]:
    """Open a path, bytes or a binary file object as a Django File; return its name and the File.

    ``name`` replaces the file's own name. Raises ValueError if the file has no name either.
    """
    if isinstance(file, (bytes, bytearray, memoryview)):
        opened: File = ContentFile(bytes(file))
    elif isinstance(file, (str, Path)):
        name = name or Path(file).name
        opened = File(Path(file).open("rb"))
    else:
        name = name or Path(getattr(file, "name", "") or "").name
        opened = File(file)
    if not name:
        raise ValueError("publish() needs a name, because the file has none")
    return name, opened


def size_of(opened: File) -> int | None:
    """Return the size of a file in bytes; None if the file cannot seek.

    Django's own ``File.size`` is the size on disk, which misses bytes that are not flushed yet.
    """
    try:
        opened.seek(0, os.SEEK_END)
        size = int(opened.tell())
        opened.seek(0)
    except (AttributeError, OSError):
        return None
    return size


def storage_path(uuid: UUID, attempt: int, name: str) -> str:
    """Return the path in Django's storage under which to store a file of an attempt."""
    return f"atp/{uuid}/{attempt}-{name}"


def store_file(path: str, content: File) -> str:
    """Store a file in Django's storage and return its path.

    If an error occurs, this removes the partly stored file and raises the error.
    """
    storage = storages[settings.STORAGE]
    path = storage.get_available_name(path)
    try:
        return storage.save(path, content)
    except BaseException:
        # A second error must not hide the first; storages may raise any exception.
        with suppress(Exception):
            storage.delete(path)
        raise
