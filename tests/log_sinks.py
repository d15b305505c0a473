"""The LOGGING of a project whose handlers are bad in every way, for daemons of tests.

``ATP_TEST_SINK`` is JSON. ``what`` is bad: a handler, its formatter, a filter of the logger, the
factory of records, the closing of the handler, or nothing; "stderr" is a plain StreamHandler,
"queue" a QueueHandler whose listener is started by ``process_started``. ``how`` is it bad, at
level ERROR: it raises or blocks; with ``as_told`` what that file says, if it is there. The loggers
named in ``logger`` have it, and what comes through is written to the file ``path``.
"""

import json
import logging
import os
import queue
import time
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

SINK = json.loads(os.environ.get("ATP_TEST_SINK", "{}"))


def misbehave(what, level=logging.ERROR):
    """Raise, or stand, as long as it is told to."""
    if SINK["what"] != what or level < logging.ERROR:
        return
    while how := _how():
        if how == "raise":
            raise RuntimeError("the log server is away")
        time.sleep(0.02)


def _how():
    if "as_told" not in SINK:
        return SINK["how"]
    try:
        return Path(SINK["as_told"]).read_text()
    except FileNotFoundError:
        return ""


def role():
    """The name of this process."""
    return Path("/proc/self/comm").read_text().strip()


def note(**facts):
    """Write a line to the file."""
    with Path(SINK["path"]).open("a") as file:
        file.write(json.dumps({"role": role(), "pid": os.getpid(), **facts}) + "\n")


class BadFilter(logging.Filter):
    def filter(self, record):
        misbehave("filter", record.levelno)
        return True


class BadFormatter(logging.Formatter):
    def format(self, record):
        misbehave("formatter", record.levelno)
        return super().format(record)


class Sink(logging.Handler):
    """Writes each line to the file. It does not catch what raises, as many do not."""

    def emit(self, record):
        misbehave("handler", record.levelno)
        note(event="line", text=self.format(record), origin=record.process)

    def close(self):
        super().close()
        misbehave("close")


def factory(*args, **more):
    misbehave("factory", args[1])
    return logging.LogRecord(*args, **more)


class Queueing(QueueHandler):
    """Its lines come to the file only where its listener's thread runs."""

    def __init__(self):
        super().__init__(queue.Queue())

    def listen(self):
        QueueListener(self.queue, Sink()).start()


def on_start(sender, role, **more):
    """The receiver of process_started."""
    note(event="started", started=role)
    if role == "worker":
        time.sleep(SINK.get("slow", 0))
    if SINK.get("fails") == role:
        raise RuntimeError("the receiver went wrong")
    if SINK["what"] == "queue" and role != "supervisor":
        next(each for each in logging.root.handlers if isinstance(each, Queueing)).listen()


def config():
    """Return the project's LOGGING."""
    if not SINK:
        return {}
    if SINK["what"] == "factory":
        logging.setLogRecordFactory(factory)
    kinds = {"stderr": logging.StreamHandler, "queue": Queueing}
    sink = {"()": kinds.get(SINK["what"], Sink), "formatter": "bad"}
    entry = {"handlers": ["sink"], "filters": ["bad"], "level": "DEBUG"}
    names = SINK.get("logger", "root").split()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"bad": {"()": BadFilter}},
        "formatters": {"bad": {"()": BadFormatter}},
        "handlers": {"sink": sink},
        **({"root": entry} if names == ["root"] else {"loggers": dict.fromkeys(names, entry)}),
    }


def connect():
    """Listen to process_started."""
    if SINK:
        from atp.signals import process_started

        process_started.connect(on_start)
