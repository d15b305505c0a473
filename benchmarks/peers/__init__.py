"""ATP and other queues doing the same work, in turn, in one run.

Each peer runs in a virtual environment of its own, made here, with the settings
that were found to be its fastest on two cores; where it saves rows by the ORM, with
those that it has by default. All are asked in the same way:

drain
    Tasks a second. All no-ops are enqueued before the workers are started. The
    clock runs from the moment when a first tenth of them, which is not counted, has
    entered its handlers, so starting is not counted, until the store shows nothing
    unfinished. One no-op in 50 tells when it was called, so none can be missing.
enqueue
    Tasks a second that one client enqueues one by one, each committed: by turns of 500
    among all that are compared. And eight clients at the same time, on PostgreSQL.
bulk
    Tasks a second by the call that enqueues many, 1,000 a call, if there is one.
latency
    Milliseconds from just before the call of an enqueue, and from its return, until
    the handler is entered, by workers that are idle, with 50 to 150 ms at random
    between two; and the memory of these workers (PSS), in all their processes.
orm
    Tasks a second whose handlers read a row by Django's ORM, add one and save it, by two
    worker processes of each, on PostgreSQL. Once with Django's default, by which most
    close their connection after each task; once with connections that are kept. The
    clock is that of drain, until all rows are saved too. A plain loop makes the same
    calls in two processes. With Django's default ATP must do 0.8 of the loop, and three
    times what each peer does.
fan
    No-ops beside each other and one task that waits for all of them, as a graph or as a
    chord, submitted to workers that are idle: the seconds of that call, and the tasks a
    second from its beginning until the last one is entered.
kill
    200 tasks of 50 ms. When 40 have ended, every process of the workers gets SIGKILL, and
    others are started at once: how many tasks never end within 400 s, how many begin twice,
    and the seconds from the kill until the last has ended.

ATP is divided by a peer run by run, since the machine may change its pace meanwhile: the
ratio is the median of those. On PostgreSQL the rows are counted that are written for a
task, by bulk and by drain. What cannot be installed or does not run is told, with the
reason.
"""


def add_arguments(add):
    add("--tasks", type=int, default=20_000, help="tasks of a drain, and in bulk")
    add("--single", type=int, default=2_000, help="tasks that are enqueued one by one, in all")
    add("--samples", type=int, default=200, help="tasks of a run whose delay is measured")
    add("--saves", type=int, default=4_000, help="tasks that save a row by the ORM")
    add("--only", type=str, default="", help="peers by their keys, with commas; all if none")
    add("--figures", type=str, default="", help="figures by their names, with commas")
    add("--venvs", type=str, default="", help="folder of the virtual environments (.peers)")


def explained():
    """Return what the figures are, as it stands above."""
    return __doc__.partition("\n\n")[2].strip()


def run(options, report):
    # This package is on the path of every peer, so nothing else is imported with it.
    from .comparison import compare

    compare(options, report)
