"""Fuzz the API of a running server: ``python -m tests.api.fuzz [options]``.

Schemathesis makes valid and invalid requests from the OpenAPI document, one by one and in
sequences, and compares the responses with the document. By default it uses the demo that ``make
demo`` has started. The tests run a short form.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


def run(schema, *options, url, login, types=None, **popen):
    """Run Schemathesis on the API at ``url``; ``login`` is ``user:password``.

    If ``types`` is given, requests use only these identifiers of Types.
    """
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION)),
        *("run", schema, "--url", url, "--auth", login, "--checks", "all"),
        # A backfill of many years takes its time on a machine that is busy, in seconds.
        *("--max-response-time", "120", *options),
    ]
    names = known(url, login) | ({"types": types} if types else {})
    environment = {**os.environ, "ATP_FUZZ_KNOWN": json.dumps(names)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, **popen)


def known(url, login):
    """Return identifiers that exist in the API, for the hooks."""

    def results(path, key, **parameters):
        answer = requests.get(
            f"{url}/atp/api/{path}", params=parameters, auth=tuple(login.split(":", 1)), timeout=60
        )
        answer.raise_for_status()
        return [each[key] for each in answer.json()["results"]]

    return {
        "types": results("types", "identifier"),
        "instances": results("instances", "uuid", limit=20),
        "daemons": results("daemons", "uuid"),
    }


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.api.fuzz", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the demo is")
    parser.add_argument("--user", default="demo")
    parser.add_argument(
        "--password-file", type=Path, default=ROOT / ".demo" / "password", metavar="FILE"
    )
    parser.add_argument("--examples", default="500", help="requests per operation and phase")
    parser.add_argument("--seconds", help="stop after so many seconds")
    parser.add_argument("--seed", help="repeat a run")
    options, more = parser.parse_known_args(argv)
    # To stop the daemon would end the demo.
    chosen = ["--exclude-operation-id", "stop_daemon"]
    chosen += ["--max-examples", options.examples, "--continue-on-failure", *more]
    if options.seconds:
        chosen += ["--max-time", options.seconds]
    if options.seed:
        chosen += ["--seed", options.seed]
    login = f"{options.user}:{options.password_file.read_text().strip()}"
    url = options.url.rstrip("/")
    return run(f"{url}/api/schema", *chosen, url=url, login=login).returncode


if __name__ == "__main__":
    sys.exit(main())
