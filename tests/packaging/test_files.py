"""The files of the package that are no modules: setup.cfg names them, so they are installed."""

from configparser import ConfigParser

from tests.imports import ROOT


def test_every_file_of_the_package_is_installed():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    package = ROOT / "atp"
    patterns = config["options.package_data"]["atp"].split()
    named = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    files = {
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - named == {path for path in files if path.suffix == ".py"}
    assert package / "py.typed" in named
