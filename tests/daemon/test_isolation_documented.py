"""docs/bad-tasks.md lists what is put back after each attempt, as the code does."""

from pathlib import Path

from atp.daemon.worker.isolation.entries import ENTRIES

PAGE = Path(__file__).parents[2] / "docs" / "bad-tasks.md"


def listed():
    return "\n".join(f"- {each.name}{_when(each)}" for each in ENTRIES)


def _when(entry):
    if entry.is_slow:
        return " (now and then)"
    return " (where Python tells of it, and now and then)" if entry.told else ""


def test_what_is_put_back_is_documented():
    assert f"\n\n{listed()}\n\n" in PAGE.read_text()
