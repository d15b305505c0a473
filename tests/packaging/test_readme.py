"""The README's way from an empty folder to the first own task, gone as it is written."""

import json
import re
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.environment import ROOT

from .readme import ATPD, blocks

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(1800)]


@pytest.fixture
def browser():
    """Something that keeps cookies and follows redirections."""
    return build_opener(HTTPCookieProcessor(CookieJar()))


def log_in(browser, walk):
    """Log in as the README's user, and return the page that follows."""
    address = f"http://{walk.address}/login/"
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', browser.open(address).read().decode())
    form = {"username": "ann", "password": "secret", "csrfmiddlewaretoken": token[1]}
    return browser.open(address, urlencode(form).encode())


def test_the_first_own_task_is_executed(walk):
    [said] = [said for command, said in walk.said.items() if "atp enqueue" in command]
    assert "FINISHED" in said
    assert json.loads(said.splitlines()[-1]) == {"greeting": "Hello, Ann!"}


def test_it_prints_what_the_readme_shows(walk):
    [shown] = [block.text for block in walk.blocks if not block.language]
    [said] = [said for command, said in walk.said.items() if "atp enqueue" in command]
    varies = r"[0-9a-f-]{36}|after \S+ \S+"
    assert re.sub(varies, "…", said) == re.sub(varies, "…", shown)


def test_the_settings_leave_no_check_unsatisfied(walk):
    assert walk.said["python manage.py check"] == (
        "System check identified no issues (0 silenced).\n"
    )


def test_nothing_is_shown_without_a_login(walk, browser):
    page = browser.open(f"http://{walk.address}/atp/")
    assert page.url == f"http://{walk.address}/login/?next=/atp/"


def test_a_login_leads_to_the_overview(walk, browser):
    page = log_in(browser, walk)
    assert page.url == f"http://{walk.address}/atp/"
    assert "shop.greet" in page.read().decode()


def test_pages_are_served_with_styles_and_scripts(walk, browser):
    page = log_in(browser, walk)
    named = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]+)"', page.read().decode())
    assert {name.rpartition(".")[2] for name in named} == {"css", "js", "svg"}
    for name in named:
        assert browser.open(urljoin(page.url, name)).status == 200


def test_a_log_out_leads_to_the_login(walk, browser):
    page = log_in(browser, walk).read().decode()
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page)
    left = browser.open(
        f"http://{walk.address}/logout/", urlencode({"csrfmiddlewaretoken": token[1]}).encode()
    )
    assert left.url == f"http://{walk.address}/login/"


def test_the_api_answers(walk, browser):
    log_in(browser, walk)
    found = json.load(browser.open(f"http://{walk.address}/atp/api/types/shop.greet"))
    assert found["handler"] == "shop.tasks.greet"


def test_the_readme_says_by_which_commands():
    """The way is gone by its own commands: the shell's verbs and the daemon are among them."""
    page = (ROOT / "README.md").read_text()
    commands = "".join(b.text for b in blocks(page, "From an empty folder") if b.language == "sh")
    for command in ("make -C", "pip install", "startproject", "migrate", ATPD, "atp enqueue"):
        assert command in commands
