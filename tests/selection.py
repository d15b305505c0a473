"""Which tests a run takes, where it does not take all: the options of ``tests.run`` for pytest.

``--beside=KIND``
    The tests are run on that kind of database, too, at the same time. So this run leaves
    to the other what need not be shown twice: what does not depend on the database, and the
    surfaces, are run on SQLite, the rest on PostgreSQL; on both, the store and what else is
    ``ON_BOTH``, what is marked ``each_database``, and the first test of each module that
    has no such mark, but for ``WITHOUT_SMOKE``.
``--short``
    No test that is marked ``long``.
``--quick``
    No test that starts a process, and none that is marked ``slow``. One that is not known to
    start a process, by its fixtures or the mark ``processes``, is skipped at that moment.
``--share=FOLDER``
    Several processes have this option with the same folder. Each test is run by one of them.
"""

import contextlib
import functools
import hashlib
import importlib
import random
import sys
from pathlib import Path

import pytest

from . import environment

# What people and programs use. It asks the store, the verbs and the reports, which are tested
# elsewhere, and needs no server of a database: so it is run on SQLite.
SURFACES = (
    *("tests/api", "tests/browser", "tests/demo", "tests/packaging", "tests/views", "tests/web"),
    *("tests/test_admin", "tests/test_commands", "tests/test_verbs"),
)
# The surfaces, and what starts processes, on the other database only where it is marked: it takes
# long, and little of it depends on the database.
WITHOUT_SMOKE = (
    *SURFACES,
    *("tests/backend", "tests/chaos", "tests/contrib", "tests/daemon", "tests/deploys"),
    *("tests/explaining", "tests/testing", "tests/test_authorization", "tests/test_benchmarks"),
    *("tests/test_graphs", "tests/test_overload", "tests/test_remedies", "tests/test_router"),
)
# Where the database matters: the contract of the store; connections, leases, hand-over, outages,
# exactly once and kills of the daemon; the order of lists, and the tests' own emptying.
# Locks of rows are PostgreSQL's alone.
OF_DAEMON = ("connections", "deaths", "freezes", "kills", "outages", "transactional", "waking")
ON_BOTH = (
    "tests/store/",
    *(f"tests/daemon/test_{name}" for name in OF_DAEMON),
    *("tests/test_emptying", "tests/test_models", "tests/test_paging"),
    "tests/test_querysets",
)
EACH = "each_database"
# What takes more than half a second of the processor, or waits for long: it is begun first.
SLOW = "slow"
# A test with one of these fixtures touches the database.
OF_DATABASE = {"db", "transactional_db", "live_server", "django_db_serialized_rollback"}
# A module with one of these names may depend on the kind of database without touching it.
OF_KIND = {"connection", "connections", "get_store", "child_environment", "database_url", "manage"}
OF_KIND |= {"run_python"}
# A test with one of these fixtures starts processes, or threads that answer a browser.
OF_PROCESSES = {"atpd", "browser", "live_server"}
# What Python tells before it starts a process.
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"}


def add_options(parser):
    group = parser.getgroup("atp", "tests of ATP")
    group.addoption("--beside", choices=list(environment.KINDS), help="leave to that database")
    group.addoption("--short", action="store_true", help="no test that is marked long")
    group.addoption("--quick", action="store_true", help="no test that starts a process")
    group.addoption("--share", metavar="FOLDER", help="share the tests with other processes")


def select(config, items):
    """Take out what this run leaves to another, and tell pytest of it."""
    left = {}
    if config.option.beside:
        smoke = _smoke(items)
        for item in items:
            if item not in smoke and home(item) not in (None, environment.kind()):
                left[item] = f"left to the run on {config.option.beside}"
    if config.option.short:
        for item in items:
            if item.get_closest_marker("long"):
                left[item] = "left to a run with --all, as they take long"
    if config.option.quick:
        for item in items:
            if item.get_closest_marker(SLOW) or _starts_processes(item):
                left[item] = "left out, as they are slow or start processes"
    items[:] = [item for item in items if item not in left]
    if left:
        config.hook.pytest_deselected(items=list(left))
    reasons = list(left.values())
    return [f"{reasons.count(reason)} tests {reason}" for reason in sorted(set(reasons))]


def home(item):
    """Return the kind of database on which a test is run in any case; None for both."""
    if not depends_on_database(item):
        return "sqlite"
    if _is_below(item, ON_BOTH):
        return None
    return "sqlite" if _is_below(item, SURFACES) else "postgres"


def _starts_processes(item):
    """Whether it is known before; the others are skipped when they start one."""
    return bool(
        OF_PROCESSES & set(item.fixturenames)
        or item.get_closest_marker("processes")
        or _is_below(item, ("tests/browser",))
    )


def depends_on_database(item):
    """Whether the test may have another outcome on another database. In doubt it may."""
    names = vars(item.module)
    return bool(
        OF_DATABASE & set(item.fixturenames)
        or any(item.get_closest_marker(name) for name in ("django_db", EACH, "skipif"))
        or OF_KIND & set(names)
        or names.get("environment") is environment
    )


def _is_below(item, paths):
    return _relative(item.path).startswith(paths)


@functools.cache
def _relative(path):
    return str(path.relative_to(environment.ROOT))


def _smoke(items):
    """Return the tests that are run on each database, though one is their home.

    Those are the tests that are marked for it, and the first of each module without a mark.
    """
    candidates = [item for item in items if home(item) and depends_on_database(item)]
    marked = {item for item in candidates if item.get_closest_marker(EACH)}
    with_smoke = [item for item in candidates if not _is_below(item, WITHOUT_SMOKE)]
    with_smoke.sort(key=lambda item: (item.location[1], item.nodeid), reverse=True)
    first = {item.path: item for item in with_smoke}
    with_a_mark = {item.path for item in marked}
    return marked | {item for path, item in first.items() if path not in with_a_mark}


class NoProcesses:
    """Skips each test of a quick run at the moment at which it starts a process."""

    def __init__(self):
        self._is_on = False
        sys.addaudithook(self._look)

    def _look(self, event, args):
        if self._is_on and event in STARTS:
            self._is_on = False
            pytest.skip("starts a process")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        self._is_on = True
        try:
            return (yield)
        finally:
            self._is_on = False

    pytest_runtest_call = pytest_runtest_setup


class Sharing:
    """Takes one test after another of those that no process has taken yet.

    Tests that share a fixture of their module or package are taken together. These, and what is
    marked ``slow``, come first: else one process would work on them when the others have ended.
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._is_own = functools.cache(self._is_first)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session):
        """Import the modules in an order of its own: what one process compiles, the others read.

        All begin at once, and in the order of pytest each would compile everything.
        """
        ignored = [Path(each).resolve() for each in session.config.option.ignore or ()]
        folders = [Path(each).resolve() for each in session.config.args]
        modules = [path for folder in folders for path in folder.rglob("test_*.py")]
        random.SystemRandom().shuffle(modules)
        for path in modules:
            if not any(path.is_relative_to(each) for each in ignored):
                # What cannot be imported is told when it is collected.
                with contextlib.suppress(Exception, pytest.skip.Exception):
                    importlib.import_module(".".join(_relative(path.with_suffix("")).split("/")))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted("errors during collection")
        if session.config.option.collectonly:
            return True
        items = sorted(session.items, key=self._is_late)
        taken = filter(self._takes, items)
        item = next(taken, None)
        while item is not None:
            following = next(taken, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _is_late(self, item):
        return self._unit(item) == item.nodeid and not item.get_closest_marker(SLOW)

    def _takes(self, item):
        return self._is_own(self._unit(item))

    def _is_first(self, unit):
        name = hashlib.sha256(unit.encode(errors="surrogatepass")).hexdigest()
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @staticmethod
    def _unit(item):
        scopes = {found[-1].scope for found in item._fixtureinfo.name2fixturedefs.values() if found}
        if "package" in scopes:
            return str(item.path.parent)
        return str(item.path) if "module" in scopes else item.nodeid
