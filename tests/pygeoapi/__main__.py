"""Run pygeoapi's own tests of a manager on ``atp.contrib.pygeoapi.Manager``::

    python -m tests.pygeoapi CHECKOUT

CHECKOUT is one of the repository geopython/pygeoapi, whose source distribution has no tests. They
run on the pygeoapi of the checkout, in a virtual environment of its own, beside a daemon. They
are unchanged but for the name of the manager. The command fails if other tests fail than those of
EXPECTED. One test resolves example.com.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.fetching import ROOT, make_environment, run

from .site import SETTINGS

MANAGER = "atp.contrib.pygeoapi.Manager"
TESTS = ("manager", "api/test_processes.py")
# The tests that do not pass, and why.
EXPECTED = {
    "test_get_job_result_binary": "It adds a job that no process has made, with a file of its own.",
    "test_async_hello_world_process_parallel": "It reads the jobs from the file of TinyDB.",
}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.pygeoapi", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout.absolute()
    python = make_environment(
        ROOT / ".conformance" / "pygeoapi" / "venv",
        [str(checkout), "pygeometa", "pytest", "starlette", "httpx", "-e", f"{ROOT}[contracts]"],
    )
    with tempfile.TemporaryDirectory(prefix="atp-pygeoapi-") as name:
        folder = Path(name)
        _copy(checkout / "tests", folder / "tests")
        (folder / "site_of_tests.py").write_text(SETTINGS)
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "site_of_tests",
            "PYGEOAPI_CONFIG": str(folder / "tests" / "pygeoapi-test-config.yml"),
            "PYTHONPATH": name,
        }
        there = {"env": environment, "cwd": folder}
        run(python, "-m", "django", "migrate", "--verbosity", "0", **there)
        with _daemon(python, there):
            sys.exit(_test(python, folder, there))


def _copy(source, target):
    """Copy the tests, and have their configurations name ATP's manager."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("data", "__pycache__"))
    for path in [*target.glob("*.yml"), *target.glob("manager/*.py")]:
        text = path.read_text()
        text = re.sub(r"(manager:\n\s+name: )(TinyDB|PostgreSQL)\b", rf"\1{MANAGER}", text)
        path.write_text(text.replace("'name': 'TinyDB'", f"'name': '{MANAGER}'"))


@contextmanager
def _daemon(python, there):
    daemon = subprocess.Popen([python, "-m", "django", "atpd", "--processes", "2"], **there)
    try:
        yield
        if daemon.poll() is not None:
            sys.exit("The daemon has ended before the tests.")
    finally:
        daemon.terminate()
        daemon.wait(60)


def _test(python, folder, there):
    """Run the tests, print the outcome, and return the exit status."""
    report = folder / "report.xml"
    tests = [f"tests/{each}" for each in TESTS]
    subprocess.run([python, "-m", "pytest", "-q", f"--junitxml={report}", *tests], **there)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case.get("name") for case in cases if {"failure", "error"} & {part.tag for part in case}
    ]
    print(f"{len(cases) - len(failed)} of {len(cases)} pass.")
    for test in failed:
        print(f"{'as expected' if test in EXPECTED else 'FAILED'}: {test} {EXPECTED.get(test, '')}")
    return int(set(failed) != set(EXPECTED))


if __name__ == "__main__":
    main()
