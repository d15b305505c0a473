"""Who is measured, with the settings that were found to be the fastest on two cores.

Those who save rows by Django's ORM have the settings that each has by default.
"""

from dataclasses import dataclass, field

DRAIN, ENQUEUE, BULK, LATENCY, ORM, FAN, KILL = FIGURES = (
    *("drain", "enqueue", "bulk"),
    *("latency", "orm", "fan", "kill"),
)
_NOOPS = (DRAIN, ENQUEUE, BULK, LATENCY)
POSTGRES, REDIS, SQLITE = "postgres", "redis", "sqlite"
# What is found of ORM with the settings that Django has by default.
SAVED = "orm, Django's defaults"

# Workers of each that saves rows, and how many times as much ATP is to do as a queue, and as
# no queue at all.
_SAVERS = 2
_AS_A_PEER, _AS_A_LOOP = 3, 0.8
# Rows are saved by what ATP's environment has, but where the peer needs psycopg 3.
_DJANGO = ("Django==5.2.19", "psycopg2-binary==2.9.13")

# What is installed into the virtual environment of each, by its name.
REQUIREMENTS = {
    "arq": ("arq==0.28.0", "redis==5.3.1"),
    "awa": ("awa-pg==0.6.9",),
    "celery": ("celery[redis]==5.7.0", "redis==8.1.0"),
    "celery-gevent": ("celery[redis]==5.7.0", "redis==8.1.0", "gevent==26.9.0"),
    "celery-django": ("celery[redis]==5.7.0", "redis==8.1.0", *_DJANGO),
    "chancy": ("chancy==0.26.0", "psycopg[binary]==3.3.9"),
    "django-ox": (
        "django-ox==1.9.1",
        "django-tasks==0.12.0",
        "Django==5.2.19",
        "psycopg[binary]==3.3.9",
    ),
    "django-ox-psycopg2": ("django-ox==1.9.1", "django-tasks==0.12.0", *_DJANGO),
    "django-q2": ("django-q2==1.11.1", "Django==5.2.19", "psycopg[binary]==3.3.9"),
    "django-tasks-db": (
        "django-tasks-db==0.13.0",
        "django-tasks==0.12.0",
        "Django==5.2.19",
        "psycopg[binary]==3.3.9",
    ),
    "django-tasks-db-psycopg2": ("django-tasks-db==0.13.0", "django-tasks==0.12.0", *_DJANGO),
    # What ATP needs, and the event loop that PgQueuer has.
    "atp-loop": (
        *_DJANGO,
        "cronsim==2.8",
        "djangorestframework==3.18.3",
        "django-environ==0.14.0",
        "uvloop==0.23.0",
    ),
    "dramatiq": ("dramatiq==2.2.1", "redis==8.1.0"),
    "huey": ("huey==3.5.4", "redis==8.1.0", "psycopg[binary]==3.3.9"),
    "huey-django": ("huey==3.5.4", "redis==8.1.0", *_DJANGO),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
    "procrastinate-django": (
        "procrastinate==3.10.0",
        "Django==5.2.19",
        "psycopg[binary]==3.3.9",
    ),
}

# The first Python that an environment can have, where that is not ATP's.
PYTHONS = {"django-ox": (3, 12), "django-ox-psycopg2": (3, 12)}


@dataclass(frozen=True, kw_only=True)
class Participant:
    """A queue with its settings.

    ``key`` chooses it; ``driver`` is a module of :mod:`.drivers`; ``environment``
    names its virtual environment, which ATP mostly has none of; ``unfinished`` asks the
    store how many tasks are not done, by a query or by commands whose answers are
    added up; ``workers`` is how many worker processes are started, which may have
    children; ``variables`` go into the environment of all its processes; ``database``
    is where handlers save rows, if not in the store; ``least`` is what ATP divided by
    it has to be at least, by values of a figure; ``rivals`` is what it has to be at least
    divided by others, by their keys and by values of a figure.
    """

    key: str
    name: str
    driver: str
    environment: str = ""
    store: str
    unfinished: str
    settings: str
    options: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    workers: int = 1
    figures: tuple = _NOOPS
    database: str = ""
    least: dict = field(default_factory=dict)
    rivals: dict = field(default_factory=dict)

    @property
    def versions(self):
        return ", ".join(self.requirements).replace("==", " ")

    @property
    def requirements(self):
        return REQUIREMENTS.get(self.environment, ())

    @property
    def first_python(self):
        return PYTHONS.get(self.environment, (3,))


def atp(store):
    """Return ATP itself, on one of the stores."""
    return Participant(
        key="atp",
        name="ATP",
        driver="atp",
        store=store,
        unfinished="SELECT count(*) FROM atp_task",
        settings="atpd --processes 2",
        options={"store": store, "processes": 2},
        figures=FIGURES if store == POSTGRES else _NOOPS,
    )


_PROCRASTINATE_UNFINISHED = (
    "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
)
_PGQUEUER = {
    "driver": "pgqueuer",
    "environment": "pgqueuer",
    "store": POSTGRES,
    "unfinished": "SELECT count(*) FROM pgqueuer",
}
_DJANGO_TASKS_DB = {
    "driver": "django_tasks_db",
    "unfinished": "SELECT count(*) FROM django_tasks_database_dbtaskresult"
    " WHERE status IN ('READY', 'RUNNING')",
    "workers": 2,
}
_DJANGO_TASKS_DB_NOOPS = {
    **_DJANGO_TASKS_DB,
    "environment": "django-tasks-db",
    "figures": (DRAIN, ENQUEUE, LATENCY),
}
# Looking again at once, and not only after up to a second.
_QUICK = {"interval": 0.1, "startup_delay": False}
_DJANGO_OX = {
    "driver": "django_ox",
    "unfinished": "SELECT count(*) FROM django_ox_oxtask WHERE status IN ('READY', 'RUNNING')",
    "workers": 2,
}
_HUEY = {
    "driver": "huey",
    "environment": "huey",
    "figures": (DRAIN, ENQUEUE, LATENCY),
}
_CELERY_UNFINISHED = "LLEN celery; HLEN unacked"
_CELERY = {
    "driver": "celery",
    "environment": "celery",
    "store": REDIS,
    "unfinished": _CELERY_UNFINISHED,
    "workers": 2,
    "figures": (DRAIN, ENQUEUE, LATENCY),
}
# What waits in one process, or in two: attempts at a time.
_BESIDE_EACH_OTHER = 100
_CELERY_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
_DRAMATIQ = {
    "driver": "dramatiq",
    "environment": "dramatiq",
    "store": REDIS,
    "unfinished": "HLEN dramatiq:default.msgs",
    "figures": (DRAIN, ENQUEUE, LATENCY),
}

_SAVES = {"figures": (ORM,), "least": {SAVED: _AS_A_PEER}}
_SAVES_BESIDE_REDIS = {**_SAVES, "database": POSTGRES}

PEERS = (
    Participant(
        key="pgqueuer",
        name="PgQueuer, batch 500",
        settings="batch_size 500, coroutines in one process, asyncpg on uvloop,"
        " autovacuum as it proposes",
        options={"batch": 500},
        **_PGQUEUER,
    ),
    Participant(
        key="pgqueuer-100",
        name="PgQueuer, batch 100",
        settings="the same with batch_size 100",
        options={"batch": 100},
        figures=(DRAIN,),
        **_PGQUEUER,
    ),
    Participant(
        key="atp-loop",
        name="ATP, coroutines in a loop",
        driver="atp_loop",
        environment="atp-loop",
        store=POSTGRES,
        unfinished="SELECT count(*) FROM atp_task",
        settings=f"atpd --loops 1, {_BESIDE_EACH_OTHER} coroutines in one process on uvloop",
        options={"store": POSTGRES, "loops": 1, "concurrency": _BESIDE_EACH_OTHER},
        figures=(DRAIN, LATENCY),
        rivals={"pgqueuer": {DRAIN: 1}},
    ),
    Participant(
        key="procrastinate",
        name="procrastinate",
        driver="procrastinate",
        environment="procrastinate",
        store=POSTGRES,
        unfinished=_PROCRASTINATE_UNFINISHED,
        settings="two processes, each of up to 20 coroutines on 3 connections; clients synchronous",
        options={"concurrency": 20, "connections": 3},
        workers=2,
    ),
    Participant(
        key="django-tasks-db",
        name="django-tasks-db",
        settings="two workers, looking every 0.1 s; persistent connections",
        store=POSTGRES,
        options={"store": POSTGRES, "worker": _QUICK},
        **_DJANGO_TASKS_DB_NOOPS | {"figures": (*_DJANGO_TASKS_DB_NOOPS["figures"], KILL)},
    ),
    Participant(
        key="django-ox",
        name="django-ox",
        environment="django-ox",
        settings="two ox_worker, looking every 0.1 s; persistent connections; for what was"
        " killed its default LOCK_TIMEOUT of 300 s",
        store=POSTGRES,
        options={"store": POSTGRES, "worker": {"interval": 0.1}},
        figures=(*_NOOPS, KILL),
        **_DJANGO_OX,
    ),
    Participant(
        key="django-ox-threads",
        name="django-ox, threads",
        environment="django-ox",
        settings="two ox_worker of 10 threads, looking every 0.1 s; persistent connections",
        store=POSTGRES,
        options={"store": POSTGRES, "worker": {"interval": 0.1, "concurrency": 10}},
        figures=(DRAIN, LATENCY),
        **_DJANGO_OX,
    ),
    Participant(
        key="django-q2",
        name="django-q2",
        driver="django_q2",
        environment="django-q2",
        store=POSTGRES,
        unfinished="SELECT count(*) FROM django_q_ormq",
        settings="ORM broker, 2 workers, bulk 100, queue_limit 100, poll 0.1, never recycled,"
        " successes not saved; persistent connections",
        options={
            "store": POSTGRES,
            "cluster": {
                "workers": 2,
                "bulk": 100,
                "queue_limit": 100,
                "poll": 0.1,
                "recycle": 10**9,
                "save_limit": -1,
            },
        },
        figures=(DRAIN, ENQUEUE, LATENCY),
    ),
    Participant(
        key="chancy",
        name="chancy, threads",
        driver="chancy",
        environment="chancy",
        store=POSTGRES,
        unfinished="SELECT count(*) FROM chancy_jobs"
        " WHERE state IN ('pending', 'running', 'retrying')",
        settings="two processes of 50 threads, eager polling, outcomes sent every 0.1 s",
        options={"threads": 50, "flush_every": 0.1},
        workers=2,
    ),
    Participant(
        key="awa",
        name="awa",
        driver="awa",
        environment="awa",
        store=POSTGRES,
        unfinished="SELECT (SELECT count(*) FROM awa.ready_entries)"
        " - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)",
        settings="queue storage, up to 500 coroutines in one process",
        options={"connections": 10, "queue": {"max_workers": 500}},
    ),
    Participant(
        key="huey-postgres",
        name="huey on PostgreSQL",
        store=POSTGRES,
        unfinished="SELECT count(*) FROM huey_task",
        settings="4 worker processes, no results; at most once: a task is gone when it begins",
        options={"store": POSTGRES, "arguments": ["--workers=4", "--worker-type=process"]},
        **_HUEY,
    ),
    Participant(
        key="huey-redis",
        name="huey on Redis",
        store=REDIS,
        unfinished="LLEN huey.redis.peers",
        settings="4 worker processes, no results; at most once: a task is gone when it begins",
        options={"store": REDIS, "arguments": ["--workers=4", "--worker-type=process"]},
        **_HUEY,
    ),
    Participant(
        key="celery",
        name="Celery, solo",
        settings="two workers with the solo pool, prefetching 64, without gossip, mingle and"
        " heartbeat; no results",
        options={"arguments": ["--pool=solo", "--prefetch-multiplier=64", *_CELERY_QUIET]},
        **_CELERY,
    ),
    Participant(
        key="celery-prefork",
        name="Celery, prefork",
        settings="two workers with one child each, prefetching 64, without gossip, mingle and"
        " heartbeat; no results",
        options={"arguments": ["--concurrency=1", "--prefetch-multiplier=64", *_CELERY_QUIET]},
        **_CELERY | {"figures": (DRAIN, LATENCY)},
    ),
    Participant(
        key="celery-gevent",
        name="Celery, gevent",
        settings="two workers of 50 greenlets each, prefetching 400, without gossip, mingle and"
        " heartbeat; no results",
        options={
            "arguments": [
                "--pool=gevent",
                f"--concurrency={_BESIDE_EACH_OTHER // 2}",
                "--prefetch-multiplier=8",
                *_CELERY_QUIET,
            ]
        },
        **_CELERY | {"environment": "celery-gevent", "figures": (DRAIN, LATENCY)},
    ),
    Participant(
        key="celery-chord",
        name="Celery, chord",
        driver="celery_chord",
        environment="celery",
        store=REDIS,
        unfinished=_CELERY_UNFINISHED,
        settings="as Celery, solo; results of the chord's tasks on the same Redis",
        options={"arguments": ["--pool=solo", "--prefetch-multiplier=64", *_CELERY_QUIET]},
        workers=2,
        figures=(FAN,),
    ),
    Participant(
        key="dramatiq",
        name="dramatiq, prefetch 200",
        settings="2 processes of 8 threads, dramatiq_queue_prefetch 200; no results",
        options={"arguments": ["--processes=2", "--threads=8"]},
        variables={"dramatiq_queue_prefetch": "200"},
        **_DRAMATIQ,
    ),
    Participant(
        key="dramatiq-default",
        name="dramatiq",
        settings="2 processes of 8 threads, each prefetching 16; no results",
        options={"arguments": ["--processes=2", "--threads=8"]},
        **_DRAMATIQ | {"figures": (DRAIN, LATENCY)},
    ),
    Participant(
        key="arq",
        name="arq",
        driver="arq",
        environment="arq",
        store=REDIS,
        unfinished="ZCARD arq:queue",
        settings=f"{_BESIDE_EACH_OTHER} coroutines in one process, looking every 0.01 s;"
        " no results",
        options={
            "worker": {
                "max_jobs": _BESIDE_EACH_OTHER,
                "poll_delay": 0.01,
                "keep_result": 0,
                "log_results": False,
            }
        },
        figures=(DRAIN, ENQUEUE, LATENCY),
    ),
    Participant(
        key="huey-sqlite",
        name="huey on SQLite",
        store=SQLITE,
        unfinished="SELECT count(*) FROM task",
        settings="2 worker processes, fsync, looking every 0.01 to 0.1 s, no results;"
        " at most once: a task is gone when it begins",
        options={
            "store": SQLITE,
            "arguments": [
                "--workers=2",
                "--worker-type=process",
                "--delay=0.01",
                "--max-delay=0.1",
            ],
        },
        **_HUEY,
    ),
    Participant(
        key="django-tasks-db-sqlite",
        name="django-tasks-db",
        settings="two workers, looking every 0.1 s; WAL, synchronous FULL",
        store=SQLITE,
        options={"store": SQLITE, "worker": _QUICK},
        **_DJANGO_TASKS_DB_NOOPS,
    ),
    Participant(
        key="loop",
        name="plain loop",
        driver="loop",
        store=POSTGRES,
        unfinished="SELECT 0",
        settings="the calls of the handlers in a loop, in two processes, without a queue",
        options={"store": POSTGRES, "processes": _SAVERS},
        figures=(ORM,),
        least={SAVED: _AS_A_LOOP},
    ),
    Participant(
        key="huey-django",
        name="huey, Django",
        driver="huey_django",
        environment="huey-django",
        store=REDIS,
        unfinished="LLEN huey.redis.peers",
        settings="run_huey with 2 worker processes, db_task, not verbose;"
        " at most once: a task is gone when it begins",
        options={
            "store": POSTGRES,
            "consumer": {"workers": _SAVERS, "worker_type": "process", "verbose": False},
        },
        **_SAVES_BESIDE_REDIS,
    ),
    Participant(
        key="celery-django",
        name="Celery, Django",
        driver="celery_django",
        environment="celery-django",
        store=REDIS,
        unfinished=_CELERY_UNFINISHED,
        settings="a worker with two children (prefork), with its fixup for Django;"
        " connections that are kept: CELERY_DB_REUSE_MAX too",
        options={"store": POSTGRES, "arguments": [f"--concurrency={_SAVERS}"]},
        **_SAVES_BESIDE_REDIS,
    ),
    Participant(
        key="procrastinate-django",
        name="procrastinate, Django",
        driver="procrastinate_django",
        environment="procrastinate-django",
        store=POSTGRES,
        unfinished=_PROCRASTINATE_UNFINISHED,
        settings="two workers by manage.py procrastinate, psycopg 3",
        options={"store": POSTGRES},
        workers=_SAVERS,
        **_SAVES,
    ),
    Participant(
        key="django-tasks-db-default",
        name="django-tasks-db, default",
        environment="django-tasks-db-psycopg2",
        settings="two db_worker",
        store=POSTGRES,
        options={"store": POSTGRES, "worker": {}},
        **_DJANGO_TASKS_DB,
        **_SAVES,
    ),
    Participant(
        key="django-ox-default",
        name="django-ox, default",
        environment="django-ox-psycopg2",
        settings="two ox_worker",
        store=POSTGRES,
        options={"store": POSTGRES, "worker": {}},
        **_DJANGO_OX,
        **_SAVES,
    ),
)
