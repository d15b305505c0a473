"""The wheel and the sdist: what is in them, and that both come to the same."""

import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import HeaderParser
from hashlib import sha256

import pytest

import atp
from tests.imports import ROOT

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(1800)]


@pytest.fixture(scope="package")
def wheel(dist):
    [path] = dist.glob("*.whl")
    return path


def contents(wheel):
    """Return the hash of each file of the package in a wheel, by its name."""
    with zipfile.ZipFile(wheel) as opened:
        return {
            name: sha256(opened.read(name)).hexdigest()
            for name in opened.namelist()
            if not name.endswith("/RECORD")
        }


def test_the_wheel_has_each_file_of_the_package_and_nothing_else(wheel):
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "atp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == there


def test_the_wheel_tells_type_checkers_that_it_has_hints(wheel):
    assert "atp/py.typed" in contents(wheel)


def test_the_wheel_is_called_as_the_version_says(wheel):
    assert wheel.name == f"django_atp-{atp.__version__}-py3-none-any.whl"


def test_the_sdist_builds_the_wheel_that_the_clone_builds(dist, clone, shell, tmp_path):
    [sdist] = dist.glob("*.tar.gz")
    for source, name in ((sdist, "a"), (clone, "b")):
        shell(f"python3 -m pip wheel --quiet --no-deps --wheel-dir {name} {source}", tmp_path)
    [first], [second] = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert contents(first) == contents(second)


def test_the_sdist_has_the_docs_and_the_tests(dist):
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    texts = {"README.md", "SECURITY.md", "LICENSE", "llms.txt", "docs/index.md"}
    assert {*texts, "Makefile", "tests/run.py", "manage.py"} <= names


def test_the_metadata_name_what_setup_cfg_names(wheel):
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(opened.read(name).decode())
    assert set(metadata.get_all("Provides-Extra")) == set(config["options.extras_require"])
    assert metadata["Requires-Python"] == config["options"]["python_requires"]
    assert metadata["License"] == "MIT"
