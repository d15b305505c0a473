"""The documentation says what is: derived parts are up to date, nothing is missing."""

import re
from collections import Counter
from configparser import ConfigParser
from itertools import groupby

import pytest
from django.dispatch import Signal

import atp
from atp import exceptions, models, queue, signals, testing
from atp.conf.kinds import HINTS
from atp.shell import subcommands
from tests import generated


@pytest.mark.parametrize("name", sorted(generated.PARTS))
def test_derived_parts_are_up_to_date(name):
    """``python -m tests.generated`` writes them anew."""
    page = (generated.DOCS / name).read_text()
    assert generated.render(page) == page
    for part in generated.PARTS[name]:
        assert f"<!-- {part.__name__} -->" in page


def test_every_promise_is_shown_by_tests():
    """That the tests which the page names are there, and that each promise has some."""
    page = (generated.DOCS / "guarantees.md").read_text()
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page):
        source = generated.DOCS.parent / path
        assert source.exists(), path
        assert not name or f"def {name}(" in source.read_text(), f"{path}::{name}"
    numbers = [int(number) for number in re.findall(r"^## G(\d+)\. ", page, re.MULTILINE)]
    assert numbers == list(range(1, 19))
    for number in numbers:
        [row] = re.findall(rf"^\| G{number} \| (.*) \|$", page, re.MULTILINE)
        assert "`" in row, f"no test names G{number}"


ROOT = generated.DOCS.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(generated.DOCS.rglob("*.md"))]


# Whom docs/choosing.md compares, in its order.
COMPARED = ["ATP", "django-ox", "django-tasks-db", "Celery", "huey", "django-q2", "procrastinate"]


def headings(page):
    """Return the names by which links lead to the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    count = Counter()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
        yield f"{name}-{count[name]}" if count[name] else name
        count[name] += 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page):
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" not in target:
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name} links to {target}"
            if heading:
                assert heading in headings(path), f"{page.name} links to {target}#{heading}"


def test_nothing_says_that_pip_finds_atp():
    """The package is not published, and anybody could take its name."""
    sources = [*PAGES, *(ROOT / "atp").rglob("*.py"), *(ROOT / "atp").rglob("*.html")]
    for path in sources:
        for line in path.read_text().splitlines():
            assert not re.search(r"pip install\s+[\"']?django.atp", line), f"{path.name}: {line}"


def test_each_wheel_that_is_named_has_this_version():
    for page in PAGES:
        for version in re.findall(r"django_atp-([\d.]+)-py3", page.read_text()):
            assert version == atp.__version__, page.name


def test_the_versions_that_are_supported_are_those_of_the_package():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    classifiers = config["metadata"]["classifiers"]
    for name in ("README.md", "docs/stability.md", "llms.txt"):
        page = (ROOT / name).read_text()
        for framework in ("Python", "Django"):
            versions = re.findall(rf"{framework} :: (\d+\.\d+)$", classifiers, re.MULTILINE)
            assert len(versions) >= 3
            [line, *_] = [line for line in page.splitlines() if versions[0] in line]
            assert all(version in line for version in (versions[0], versions[-1])), name


# The changes name what is no more, too.
@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "changelog"], ids=lambda p: p.name)
def test_what_a_page_names_is_there(page):
    """The verbs of the queue, the subcommands of the shell, the settings, the signals."""
    named = {
        r"\bqueue\.(\w+)\(": set(queue.__all__),
        r"\bmanage\.py atp (?!--)([a-z-]+)\b": {command.name for command in subcommands()},
        r"\bATP\[[\"'](\w+)[\"']\]": set(HINTS),
        r"\batp\.signals\.(\w+)": set(vars(signals)),
        r"\bfrom atp import ([\w, ]+)": {*atp.__all__, "queue"},
    }
    text = page.read_text()
    for pattern, known in named.items():
        for names in re.findall(pattern, text):
            assert set(re.split(r", ?", names)) <= known, f"{page.name}: {names}"


def test_language_models_are_led_to_every_page():
    """``llms.txt`` has the form of llmstxt.org, and says of each page what the index says.

    The pages of the reference have no text of their own: a model reads the docstrings.
    """
    title, summary, *rest = filter(None, (ROOT / "llms.txt").read_text().splitlines())
    assert title == "# ATP"
    assert summary.startswith("> ")
    linked = {}
    for line in rest:
        link = re.fullmatch(r"- \[(.+?)\]\(([\w./-]+)\): (.+)", line)
        assert link or line.startswith(("## ", "- ")), line
        if link:
            name, path, text = link.groups()
            assert (ROOT / path).exists(), path
            assert path not in linked, path
            linked[path] = (name, text)
    index = (generated.DOCS / "index.md").read_text()
    rows = re.findall(r"^\| \[(.+?)\]\((.+?\.md)\) \| (.+) \|$", index, re.MULTILINE)
    for name, path, text in rows:
        page = (generated.DOCS / path).resolve().relative_to(ROOT).as_posix()
        assert linked.get(page) == (name, text), page
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert pages == linked.keys()


def test_every_page_is_in_the_index():
    index = (generated.DOCS / "index.md").read_text()
    for page in (*generated.DOCS.rglob("*.md"), *generated.DOCS.rglob("*.rst")):
        name = page.relative_to(generated.DOCS).as_posix()
        assert name == "index.md" or f"({name})" in index


def test_each_statement_of_the_comparison_has_its_source():
    """Each table of Choosing has all of whom it compares, and each row where that was read."""
    page = (generated.DOCS / "choosing.md").read_text()
    tables = page.partition("## The facts")[2].split("\n### ")[1:]
    for table in tables:
        title, *lines = table.splitlines()
        head, _, *rows = [re.split(r" *\| *", line)[1:-1] for line in lines if "|" in line]
        assert re.fullmatch(r"source, read 20\d\d-\d\d-\d\d", head[-1]), title
        assert all(all(row[1:]) and len(row) == len(head) for row in rows), title
        named = [row[0].partition(",")[0] for row in rows]
        assert [name for name, _ in groupby(named)] == COMPARED, title


def reference(name):
    """Return the names that a page of the reference takes docstrings of."""
    page = (generated.DOCS / "reference" / f"{name}.rst").read_text()
    return re.findall(r"^\.\. auto(?!module)\w+:: (?:[\w.]+\.)?(\w+)", page, re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    raised = {
        name
        for name, thing in vars(exceptions).items()
        if isinstance(thing, type) and issubclass(thing, BaseException)
    }
    sent = {name for name, thing in vars(signals).items() if isinstance(thing, Signal)}
    assert sorted(reference("exceptions")) == sorted(raised)
    assert sorted(reference("signals")) == sorted(sent)
    assert sorted(reference("atp")) == sorted({*atp.__all__} - raised)
    assert reference("queue") == queue.__all__
    assert sorted(reference("testing")) == sorted(testing.__all__)
    returned = " ".join(
        str(getattr(queue, name).__annotations__.get("return"))
        for name in queue.__all__
        if callable(getattr(queue, name))
    )
    rows = {name for name in models.__all__ if re.search(rf"\b{name}\b", returned)}
    assert {"ErrorGroup", "Graph", "Instance", "LogRecord", "Slot", "Task"} <= rows
    assert sorted(rows - {*reference("models")}) == []


def test_every_parameter_and_option_is_documented():
    from dataclasses import fields

    from atp.authoring.parameters import KNOWN
    from atp.words.options import Options

    page = (generated.DOCS / "tasks.md").read_text()
    for name in (*KNOWN, *(field.name for field in fields(Options))):
        assert name in page, name


def test_every_exception_has_a_contract():
    for name, thing in vars(exceptions).items():
        if isinstance(thing, type) and issubclass(thing, BaseException):
            assert thing.__doc__, name


def test_each_extra_is_in_the_list_of_extras():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    page = (ROOT / "docs/stability.md").read_text()
    section = page.partition("## Extras")[2].partition("\n## ")[0]
    missing = {name for name in config["options.extras_require"] if f"`{name}`" not in section}
    assert missing == set()
