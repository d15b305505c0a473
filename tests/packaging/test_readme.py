"""Follows the README from an empty folder to the first task."""

import json
import re
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(1800)]


def test_the_first_task_of_the_readme_prints_what_is_shown(walk):
    assert walk.said["python manage.py check"] == (
        "System check identified no issues (0 silenced).\n"
    )
    [shown] = [block.text for block in walk.blocks if not block.language]
    [said] = [said for command, said in walk.said.items() if "atp enqueue" in command]
    varies = r"[0-9a-f-]{36}|after \S+ \S+"
    assert re.sub(varies, "…", said) == re.sub(varies, "…", shown)
    assert json.loads(said.splitlines()[-1]) == {"greeting": "Hello, Ann!"}


def test_a_login_opens_the_pages_with_their_static_files_and_the_api(walk):
    browser = build_opener(HTTPCookieProcessor(CookieJar()))

    def send(address, text, **form):
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', text)
        form["csrfmiddlewaretoken"] = token[1]
        return browser.open(f"http://{walk.address}/{address}/", urlencode(form).encode())

    page = browser.open(f"http://{walk.address}/atp/")
    assert page.url == f"http://{walk.address}/login/?next=/atp/"
    page = send("login", page.read().decode(), username="ann", password="secret")
    assert page.url == f"http://{walk.address}/atp/"
    text = page.read().decode()
    assert "shop.greet" in text
    named = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]+)"', text)
    assert {name.rpartition(".")[2] for name in named} == {"css", "js", "svg"}
    for name in named:
        assert browser.open(urljoin(page.url, name)).status == 200
    found = json.load(browser.open(f"http://{walk.address}/atp/api/types/shop.greet"))
    assert found["handler"] == "shop.tasks.greet"
    assert send("logout", text).url == f"http://{walk.address}/login/"
