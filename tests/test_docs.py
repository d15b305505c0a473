"""Tests that the documentation is complete and that its generated parts are up to date."""

import ast
import re
from collections import Counter
from configparser import ConfigParser
from dataclasses import fields
from functools import cache

import pytest
from django.dispatch import Signal

import atp
from atp import exceptions, models, queue, signals, testing
from atp.authoring.parameters import PARAMETER_NAMES
from atp.conf import TYPES
from atp.management.commands.atp import subcommands
from atp.options import Options
from tests import generated


def test_generated_parts_of_the_docs_are_up_to_date():
    """``python -m tests.generated`` updates the generated parts."""
    old = []
    for name, parts in generated.PARTS.items():
        page = (generated.DOCS / name).read_text()
        missing = [part for part in parts if f"<!-- {part.__name__} -->" not in page]
        if missing or generated.render(page) != page:
            old.append(name)
    assert old == []


@pytest.mark.slow
def test_every_promise_is_shown_by_tests_that_are_run():
    """The page ``guarantees.md`` names tests for each promise, and ``make test`` runs them."""
    page = (generated.DOCS / "guarantees.md").read_text()
    for path in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (generated.DOCS.parent / path).exists(), path
    rows = re.findall(r"^\| G(\d+) \| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 19))
    for number, row in rows:
        named = re.findall(r"`([\w/]+\.py)::([\w:]+)`", row)
        assert named, f"no test names G{number}"
        for path, name in named:
            assert is_run(f"tests/{path}", name), f"G{number}: {path}::{name}"


def is_run(path, name):
    """Return True if ``make test`` runs a test: the test exists and is not marked ``long``."""
    node = ast.parse((generated.DOCS.parent / path).read_text())
    marked = [
        each.value
        for each in node.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"
    ]
    for part in name.split("::"):
        found = [each for each in node.body if getattr(each, "name", None) == part]
        if not found:
            return False
        [node] = found
        marked += node.decorator_list
    marks = [ast.unparse(mark) for mark in marked if "parametrize" not in ast.unparse(mark)]
    return not any(re.search(r"\b(long|skip)\b", mark, re.IGNORECASE) for mark in marks)


ROOT = generated.DOCS.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(generated.DOCS.rglob("*.md"))]


def test_docs_name_versions_extras_and_parameters_of_the_package():
    """No page says that pip can install the package by name, because it is not published."""
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
    for page in PAGES:
        for version in re.findall(r"django_atp-([\d.]+)-py3", page.read_text()):
            assert version == atp.__version__, page.name
    for path in (*PAGES, *(ROOT / "atp").rglob("*.py"), *(ROOT / "atp").rglob("*.html")):
        assert not re.search(r"pip install[ \t]+[\"']?django.atp", path.read_text()), path.name
    section = (ROOT / "docs/stability.md").read_text().partition("## Extras")[2]
    for name in config["options.extras_require"]:
        assert f"`{name}`" in section.partition("\n## ")[0], name
    page = (generated.DOCS / "tasks.md").read_text()
    for name in (*PARAMETER_NAMES, *(field.name for field in fields(Options))):
        assert name in page, name


@cache
def headings(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    count, found = Counter(), set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
        found.add(f"{name}-{count[name]}" if count[name] else name)
        count[name] += 1
    return found


def test_every_link_between_pages_has_an_existing_target():
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            if "://" not in target:
                path = (page.parent / target if target else page).resolve()
                assert path.exists(), f"{page.name} links to {target}"
                if heading:
                    assert heading in headings(path), f"{page.name} links to {target}#{heading}"


def test_each_name_of_the_package_that_the_docs_use_exists():
    """The names that the docs import from ``atp`` exist, too."""
    named = {
        r"\bqueue\.(\w+)\(": set(queue.__all__),
        r"\bmanage\.py atp (?!--)([a-z-]+)\b": {command.name for command in subcommands()},
        r"\bATP\[[\"'](\w+)[\"']\]": set(TYPES),
        r"\batp\.signals\.(\w+)": set(vars(signals)),
        r"\bfrom atp import ([\w, ]+)": {*atp.__all__, "queue"},
    }
    # The changelog also names what was removed.
    for page in (page for page in PAGES if page.stem != "changelog"):
        text = page.read_text()
        for pattern, known in named.items():
            for names in re.findall(pattern, text):
                assert set(re.split(r", ?", names)) <= known, f"{page.name}: {names}"


def test_index_and_llms_txt_link_to_every_page():
    """``llms.txt`` has the format of llmstxt.org and describes each page as the index does."""
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
    for page in (*generated.DOCS.rglob("*.md"), *generated.DOCS.rglob("*.rst")):
        name = page.relative_to(generated.DOCS).as_posix()
        assert name == "index.md" or f"({name})" in index
    rows = re.findall(r"^\| \[(.+?)\]\((.+?\.md)\) \| (.+) \|$", index, re.MULTILINE)
    for name, path, text in rows:
        page = (generated.DOCS / path).resolve().relative_to(ROOT).as_posix()
        assert linked.get(page) == (name, text), page
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert pages == linked.keys()


def reference(name):
    """Return the names whose docstrings a page of the reference includes."""
    page = (generated.DOCS / "reference" / f"{name}.rst").read_text()
    return re.findall(r"^\.\. auto(?!module)\w+:: (?:[\w.]+\.)?(\w+)", page, re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    raised = {
        name
        for name, thing in vars(exceptions).items()
        if isinstance(thing, type) and issubclass(thing, BaseException)
    } - {"IncompatibleInputs", "Unusable"}  # a worker raises and catches these
    sent = {name for name, thing in vars(signals).items() if isinstance(thing, Signal)}
    assert sorted(reference("exceptions")) == sorted(raised)
    assert all(getattr(exceptions, name).__doc__ for name in raised)
    # A traceback shows where each is imported from.
    assert {getattr(exceptions, name).__module__ for name in raised} == {"atp.exceptions"}
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
