"""Runs the demo's own tests, which are examples for the tests of a project."""

from demo_project.tests import TerrainTests

__all__ = ["TerrainTests"]
