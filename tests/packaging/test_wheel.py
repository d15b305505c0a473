"""The files of the package in the wheel and in the sdist, which builds the same wheel."""

import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import HeaderParser
from hashlib import sha256

import pytest

import atp
from tests.imports import ROOT

FILES = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "atp").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
CONFIG = ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def test_setup_cfg_includes_every_data_file():
    """Only files that setup.cfg names are installed."""
    patterns = CONFIG["options.package_data"]["atp"].split()
    paths = {path for pattern in patterns for path in (ROOT / "atp").glob(pattern)}
    named = {path.relative_to(ROOT).as_posix() for path in paths if path.is_file()}
    assert FILES - named == {name for name in FILES if name.endswith(".py")}
    assert "atp/py.typed" in named


def built(test):
    """Mark a test that needs the files that ``make`` has built."""
    for mark in (pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(1800)):
        test = mark(test)
    return test


@pytest.fixture(scope="package")
def wheel(dist):
    [path] = dist.glob("*.whl")
    return path


def contents(wheel):
    """Return the hash of each file of the package in a wheel, by file name."""
    with zipfile.ZipFile(wheel) as opened:
        return {
            name: sha256(opened.read(name)).hexdigest()
            for name in opened.namelist()
            if not name.endswith("/RECORD")
        }


@built
def test_the_wheel_contains_every_file_and_the_metadata_of_setup_cfg(wheel):
    assert wheel.name == f"django_atp-{atp.__version__}-py3-none-any.whl"
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == FILES
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(opened.read(name).decode())
    assert set(metadata.get_all("Provides-Extra")) == set(CONFIG["options.extras_require"])
    assert metadata["Requires-Python"] == CONFIG["options"]["python_requires"]
    assert metadata["License"] == "MIT"


@built
def test_the_sdist_is_complete_and_builds_the_same_wheel(dist, clone, shell, tmp_path):
    [sdist] = dist.glob("*.tar.gz")
    for source, name in ((sdist, "a"), (clone, "b")):
        shell(f"python3 -m pip wheel --quiet --no-deps --wheel-dir {name} {source}", tmp_path)
    [first], [second] = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert contents(first) == contents(second)
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    texts = {"README.md", "SECURITY.md", "LICENSE", "llms.txt", "docs/index.md"}
    assert {*texts, "Makefile", "tests/run.py", "manage.py"} <= names
