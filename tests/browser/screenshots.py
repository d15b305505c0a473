"""Makes the screenshots for the docs: ``python -m tests.browser.screenshots [folder]``.

The demo runs in a temporary directory until all of its tasks are done. Then more tasks are
enqueued, so that some run and some wait. The overview and the page of a Type are those of the
incident drill, which has a history of three days and a problem. Each page is captured in a light
theme, in a dark theme, and on a phone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from PIL import Image

from ..environment import ROOT
from ..helpers import wait_for
from . import chromium

FOLDER = ROOT / "docs" / "screenshots"
# What is further down a page says little more; in pixels.
TALLEST = 1600
# Of one file, in bytes.
LARGEST = 120_000
# Scales and numbers of colours, tried in this order until it is that small. Text
# and lines need the first alone; a picture of mountains needs more than is left.
SMALLER = ((1, 256), (1, 128), (1, 64), (0.75, 64), (0.6, 64), (0.5, 64), (0.5, 32))
# Colours that are left as they are.
KEPT = 16
DEADLINE = 180
# The variables that lead to the demo.
DEMO = ("DEMO_DIR", "DJANGO_SETTINGS_MODULE")
# Options of every browser context.
CONTEXT = {"reduced_motion": "reduce", "locale": "en-GB", "timezone_id": "UTC"}


def main(arguments=None):
    """Make all screenshots and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="docs/screenshots")
    folder = parser.parse_args(arguments).folder
    try:
        print(f"browser: {chromium.ensure()}", flush=True)
    except chromium.NoBrowser as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="atp-screenshots-") as directory:
        _set_up(directory)
        clear(folder)
        with _demo(Path(directory)) as site:
            take(site, folder)
    with _drill() as site:
        take(site, folder)
    return 0


def _set_up(directory):
    """Configure Django with the settings of the demo and a database in the directory."""
    os.environ |= dict(zip(DEMO, (directory, "demo_project.settings"), strict=True))
    os.environ.pop("DATABASE_URL", None)

    import django

    django.setup()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A web server with pages: ``pages`` has the path of each by the name of its screenshot.

    ``shows`` is a text on the first page, which it may only show after a while.
    """

    address: str
    user: str
    password: str
    pages: dict
    shows: str = ""


@contextmanager
def _drill():
    """Run the first incident of the drill, and yield its Site."""
    command = [sys.executable, "-m", "tests.drill", "--json", "--port=0", "--incident=1"]
    own = {name: value for name, value in os.environ.items() if name not in DEMO}
    with subprocess.Popen(
        command, cwd=ROOT, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as drill:
        print("Waiting for the drill …", flush=True)
        told = json.loads(drill.stdout.readline())
        drill.stdout.readline()  # the incident has begun
        try:
            yield Site(
                address=told["address"].removesuffix("/atp/"),
                user=told["user"],
                password=told["password"],
                pages={"overview": "/atp/", "type": "/atp/types/shop.invoice/"},
                shows="of shop.invoice failed within",
            )
        finally:
            drill.communicate()


@contextmanager
def _demo(directory):
    """Run the demo, and yield its Site."""
    from demo_project.show import play, programme
    from demo_project.show.children import Child, start_web
    from demo_project.show.welcome import USER

    manage = ROOT / "manage.py"
    password = play.prepare(directory)
    with ExitStack() as stack:
        web, port = start_web(0, manage=manage, log=directory / "web.log")
        stack.callback(web.stop, patience=15)
        # Whatever still runs in the end has been looked at.
        command = [manage, "atpd", "--processes", "2", "--grace", "0"]
        daemon = Child("daemon", command, log=directory / "atpd.log")
        stack.callback(daemon.stop, patience=30)
        ended = programme.enqueue()

        def is_done():
            web.check()
            daemon.check()
            return all(row.is_terminal for row in programme.selected(pk__in=[i.pk for i in ended]))

        print("Waiting for the tasks of the demo …", flush=True)
        wait_for(is_done, DEADLINE, what="the end of the demo's tasks")
        yield Site(
            address=f"http://127.0.0.1:{port}",
            user=USER,
            password=password,
            pages=_pages(ended, _at_work()),
        )


def _at_work():
    """Enqueue tasks that are in progress while the screenshots are made; return a running one."""
    from atp import Graph
    from demo_project import tasks

    by = {"created_by": "the demo"}
    running = [tasks.flow.using(**by, priority=20).enqueue(detail=16)]
    with Graph("under way", by="the demo") as graph:
        survey = graph.add(tasks.survey.using(priority=10))
        numbers = graph.add(tasks.statistics.using(priority=10))
        shades = graph.map(
            tasks.hillshade.using(priority=5),
            ({"azimuth": number} for number in range(0, 360, 4)),
            after=survey,
        )
        flows = [graph.add(tasks.flow, name=f"flow-{n}", after=numbers) for n in (1, 2)]
        both = graph.add(tasks.statistics, name="merge", after=[*flows, shades])
        graph.add(tasks.on_time, after=both, on_failure="run", name="tell")
    tasks.hillshade.using(**by, collection="tour").enqueue_many(
        {"azimuth": azimuth} for azimuth in (90, 135, 180)
    )
    tasks.statistics.using(**by, run_after=timedelta(hours=8)).enqueue(bins=50)

    def has_progress():
        running[0].refresh_from_db()
        done = graph.row.nodes.filter(instance__state="FINISHED").count()
        return running[0].progress and done > 8

    wait_for(has_progress, DEADLINE, what="progress")
    return running[0]


def _pages(ended, running):
    """Return the path of each page by the name of its screenshot."""
    from atp.models import Graph
    from demo_project import tasks

    graphs = dict(Graph.objects.values_list("name", "uuid"))
    hillshade, crash = tasks.hillshade.identifier, tasks.crash.identifier
    finished = next(row for row in ended if row.type.identifier == hillshade)
    failed = next(row for row in ended if row.type.identifier == crash)
    return {
        "instances": "/atp/instances/",
        "instance-running": f"/atp/instances/{running.uuid}/",
        "instance-finished": f"/atp/instances/{finished.uuid}/",
        "instance-failed": f"/atp/instances/{failed.uuid}/",
        "types": "/atp/types/",
        "enqueue": f"/atp/types/{hillshade}/enqueue/",
        "graphs": "/atp/graphs/",
        "graph": f"/atp/graphs/{graphs['relief']}/",
        "graph-running": f"/atp/graphs/{graphs['under way']}/",
        "schedules": "/atp/schedules/",
        "schedule": "/atp/schedules/each-ten-seconds/",
        "daemons": "/atp/daemons/",
        "api": "/api/",
    }


def clear(folder):
    """Remove all screenshots from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for look in chromium.LOOKS:
        for of_before in folder.glob(f"*-{look}.png"):
            of_before.unlink()


def take(site, folder):
    """Write a screenshot of each page of a Site in each look."""
    with chromium.launched() as browser:
        for look, options in chromium.LOOKS.items():
            context = browser.new_context(base_url=site.address, **CONTEXT, **options)
            page = context.new_page()
            _log_in(page, site)
            if site.shows:
                page.get_by_text(site.shows).first.wait_for(timeout=1000 * DEADLINE)
            for name, path in site.pages.items():
                file = folder / f"{name}-{look}.png"
                file.write_bytes(small(_picture(page, path)))
                print(f"  {file}  {file.stat().st_size / 1000:.0f} kB", flush=True)
            context.close()


def _log_in(page, site):
    page.goto("/login/")
    page.get_by_label("Username").fill(site.user)
    page.get_by_label("Password").fill(site.password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("/atp/")


def _picture(page, path):
    answer = page.goto(path)
    if not answer.ok:
        raise AssertionError(f"{path}: {answer.status}")
    # The page of the API draws itself from what it loads.
    page.wait_for_load_state("networkidle")
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": min(height, TALLEST)}
    return page.screenshot(full_page=True, clip=clip)


def small(png):
    """Return a screenshot as a file below the size limit. Raises ValueError."""
    image = Image.open(BytesIO(png)).convert("RGB")
    for scale, colours in SMALLER:
        size = (round(image.width * scale), round(image.height * scale))
        scaled = image.resize(size, Image.Resampling.LANCZOS)
        palette = _palette(scaled, colours)
        data = BytesIO()
        scaled.quantize(palette=palette, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
        if data.tell() <= LARGEST:
            return data.getvalue()
    raise ValueError(f"there is too much in the picture: {data.tell()} bytes at the smallest")


def _palette(image, colours):
    """Return a palette of this size that keeps the most frequent colours of the page exactly.

    A picture on the page has more colours than the rest of the page, which would otherwise be
    drawn in the colours of the picture.
    """
    most = sorted(image.getcolors(image.width * image.height), reverse=True)[:KEPT]
    kept = [channel for _, colour in most for channel in colour]
    rest = image.quantize(colours - KEPT).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette(kept + rest)
    return palette


if __name__ == "__main__":
    sys.exit(main())
