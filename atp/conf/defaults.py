"""The keys of ``settings.ATP`` and their defaults. The docs list them from here."""

import tempfile
from datetime import timedelta
from pathlib import Path


class Defaults:
    """Typed attributes: the name is the key, the value the default."""

    DATABASE: str = "default"
    """Alias of the database that holds the queue."""

    STORE: str = ""
    """Dotted path of the store class; empty chooses by the database's vendor."""

    STORAGE: str = "default"
    """Alias in STORAGES for large responses and published files."""

    TIMEOUT: timedelta | float | None = timedelta(hours=1)
    """Time-out of Types that state none; None never times out."""

    MAX_RESTARTS: int = 3
    """Attempts that may be lost while running, for Types that state none (RFC 14)."""

    MAX_RETRIES: int = 0
    """Attempts that may raise and be tried again, for Types that state none."""

    MAX_MEMORY: int | str | None = None
    """What an attempt may take of memory, as "2GiB", if its Type says nothing; None: no limit."""

    BACKOFF: timedelta | float = timedelta(seconds=5)
    """Delay before the first retry; each further one waits twice as long."""

    BACKOFF_MAX: timedelta | float = timedelta(hours=1)
    """Longest delay before a retry."""

    RETENTION: timedelta | float | None = timedelta(days=30)
    """How long terminal Instances are kept, for Types that state nothing; None is for ever."""

    MAX_INPUTS_SIZE: int = 1024 * 1024
    """Largest serialized inputs of one Instance, in bytes."""

    MAX_STEP_SIZE: int = 1024 * 1024
    """Largest serialized result of a step, in bytes."""

    MAX_STEPS: int = 1000
    """Steps that one Instance may have."""

    MAX_RESPONSE_INLINE: int = 64 * 1024
    """Responses larger than this many bytes are stored as a file."""

    MAX_LOG_RECORDS: int = 1000
    """Messages kept per attempt: the first fifth and the newest, and a line on those left out."""

    MAX_LOG_MESSAGE: int = 8 * 1024
    """Longest message kept, in characters; longer ones are cut in the middle."""

    MAX_FILES: int = 1000
    """Files that an attempt may publish."""

    LOG_LEVEL: str = "INFO"
    """Lowest level of standard logging that is captured from handlers."""

    ALLOW_PICKLE: bool = False
    """Whether Types may ask for signed pickle instead of JSON."""

    MIDDLEWARE: list[str] | tuple[str, ...] = ()
    """Dotted paths of what goes around each attempt, the outermost first."""

    CARRIERS: list[str] | tuple[str, ...] = ()
    """Dotted paths of what takes values from an enqueue to the handler."""

    SCRATCH_DIR: str | Path = tempfile.gettempdir()
    """Where scratch directories of attempts are made."""

    RELEASE: str = ""
    """The release of the project's code, as its daemons write it on their rows."""

    MISFIT_FOR: timedelta | float = timedelta(hours=1)
    """How long inputs that fit no daemon are deferred before the Instance is FAILED."""

    LEASE: float = 30.0
    """For how long a renewal entitles a daemon to hold its Tasks."""

    RENEW_EVERY: float = 5.0
    """Time between two renewals."""

    KILL_AFTER: float = 26.0
    """Workers are killed this long after the last successful renewal was sent."""

    STATEMENT_TIMEOUT: float = 5.0
    """A call to the database that takes longer is cut off."""

    POLL_EVERY: float = 1.0
    """Longest time between two looks for what is due, and for requests on what runs."""

    SWEEP_EVERY: float = 1.0
    """Longest time between two looks for lost daemons and missed Instances."""

    SCAN_EVERY: float = 60.0
    """Time between two scans for what was forgotten or does not fit together."""

    SCAN_AFTER: float = 60.0
    """A scan reports what has been wrong for longer than this, and than the lease."""

    PURGE_EVERY: float = 60.0
    """Time between two removals of what retention allows to remove."""

    RELEASE_GRACE: float = 5.0
    """Time between asking a handler to stop and killing it."""

    CANCEL_GRACE: float = 10.0
    """Time between asking to cancel what runs and killing it, for Types that state none."""

    KEEP_CONNECTIONS: float = 60.0
    """For how long a worker keeps a database connection that no task uses; 0: not at all."""

    MAX_WAITERS: int = 4
    """Clients that may wait (`?wait=`) in threads of one web process; three fewer than it has."""
    MAX_WAITERS_PER_USER: int = 2
    """How many of them may be one user's."""
    MAX_ASYNC_WAITERS: int = 1000
    """Clients that may wait in one web process under ASGI, where they take no thread."""
    MAX_ASYNC_WAITERS_PER_USER: int = 500
    """How many of them may be one user's."""

    WEBHOOKS: dict = {}
    """Targets of webhooks by name: a dictionary each, with url, secret and patterns of Types."""

    GRACE: float = 30.0
    """Default of ``atpd --grace``: time that running tasks get when a daemon stops."""
