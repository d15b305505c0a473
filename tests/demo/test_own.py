"""The demo's own tests, which show how the tests of a project are written."""

from demo_project.tests import TerrainTests

__all__ = ["TerrainTests"]
