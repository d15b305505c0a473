"""The keys of ``settings.ATP`` and their defaults. The docs list them from here."""

import tempfile
from datetime import timedelta
from pathlib import Path


class Defaults:
    """Typed attributes: the name is the key, the value the default."""

    DATABASE: str = "default"
    """Alias of the database that holds the queue."""

    STORE: str = ""
    """Dotted path of the store class; if empty, ATP chooses it by the database's vendor."""

    STORAGE: str = "default"
    """Alias in STORAGES for large responses and published files."""

    TIMEOUT: timedelta | float | None = timedelta(hours=1)
    """Time-out of attempts, for Types that state none; None: no time-out."""

    MAX_RESTARTS: int = 3
    """Number of attempts that may be lost while running, for Types that state none (RFC 14)."""

    MAX_RETRIES: int = 0
    """Number of retries after attempts that raised, for Types that state none."""

    MAX_MEMORY: int | str | None = None
    """Memory that an attempt may take, as "2GiB", for Types that state none; None: no limit."""

    BACKOFF: timedelta | float = timedelta(seconds=5)
    """Delay before the first retry; each further retry waits twice as long."""

    BACKOFF_MAX: timedelta | float = timedelta(hours=1)
    """Longest delay before a retry."""

    RETENTION: timedelta | float | None = timedelta(days=30)
    """How long terminal Instances are kept, for Types that state none; None: for ever."""

    MAX_INPUTS_SIZE: int = 1024 * 1024
    """Largest serialized inputs of one Instance, in bytes."""

    MAX_STEP_SIZE: int = 1024 * 1024
    """Largest serialized result of a step, in bytes."""

    MAX_STEPS: int = 1000
    """Steps that one Instance may have."""

    MAX_RESPONSE_INLINE: int = 64 * 1024
    """Responses larger than this many bytes are stored as a file."""

    MAX_LOG_RECORDS: int = 1000
    """Messages kept per attempt: the first fifth and the newest; a line counts those left out."""

    MAX_LOG_MESSAGE: int = 8 * 1024
    """Longest message kept, in characters; longer ones are cut in the middle."""

    MAX_FILES: int = 1000
    """Files that an attempt may publish."""

    LOG_LEVEL: str = "INFO"
    """Lowest level of standard logging that is captured from handlers."""

    ALLOW_PICKLE: bool = False
    """Whether Types may ask for signed pickle instead of JSON."""

    MIDDLEWARE: list[str] | tuple[str, ...] = ()
    """Dotted paths of the middleware around each attempt, the outermost first."""

    CARRIERS: list[str] | tuple[str, ...] = ()
    """Dotted paths of the carriers, which take values from an enqueue to the handler."""

    SCRATCH_DIR: str | Path = tempfile.gettempdir()
    """Folder in which daemons make the scratch directories of attempts."""

    RELEASE: str = ""
    """The release of the project's code; each daemon writes it in its row."""

    MISFIT_FOR: timedelta | float = timedelta(hours=1)
    """How long an Instance whose inputs fit no daemon is deferred before it is FAILED."""

    LEASE: float = 30.0
    """How long a daemon may hold its Tasks after a renewal of its lease."""

    RENEW_EVERY: float = 5.0
    """Time between two renewals of a daemon's lease."""

    KILL_AFTER: float = 26.0
    """A daemon kills its workers this long after it sent the last renewal that succeeded."""

    STATEMENT_TIMEOUT: float = 5.0
    """Longest time for a daemon's call to the database; a longer call is cut off."""

    POLL_EVERY: float = 1.0
    """Longest time between two looks for due Tasks."""

    SWEEP_EVERY: float = 1.0
    """Longest time between two looks for lost daemons and missed Instances."""

    SCAN_EVERY: float = 60.0
    """Time between two scans for forgotten Tasks, and for rows that do not fit together."""

    SCAN_AFTER: float = 60.0
    """A scan reports a fault only if it has lasted longer than this, and longer than a lease."""

    PURGE_EVERY: float = 60.0
    """Longest time between two removals of the Instances whose retention is over."""

    RELEASE_GRACE: float = 5.0
    """Time between the request to release a running task and its kill."""

    CANCEL_GRACE: float = 10.0
    """Time between the request to cancel a running task and its kill, for Types that state none."""

    KEEP_CONNECTIONS: float = 60.0
    """How long a worker keeps a database connection that no task uses; 0: not at all."""

    MAX_WAITERS: int = 4
    """Clients that may wait (`?wait=`) in threads of one web process; at most its threads - 3."""
    MAX_WAITERS_PER_USER: int = 2
    """How many of the MAX_WAITERS clients may be from one user."""
    MAX_ASYNC_WAITERS: int = 1000
    """Clients that may wait in one web process under ASGI, where they take no thread."""
    MAX_ASYNC_WAITERS_PER_USER: int = 500
    """How many of the MAX_ASYNC_WAITERS clients may be from one user."""

    WEBHOOKS: dict = {}
    """Targets of webhooks by name; each is a dictionary with url, secret and patterns of Types."""

    AUTHORIZE: str = ""
    """Dotted path of the function that narrows users' permissions to Types and lanes."""

    METRICS_TOKEN: str = ""
    """The token with which Prometheus may read the metrics; empty: only users may."""

    GRACE: float = 30.0
    """Default of ``atpd --grace``: time that running tasks get when a daemon stops."""
