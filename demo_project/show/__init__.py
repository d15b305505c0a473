"""Runs the demo's processes, and shows progress and results in the terminal."""


class DemoError(Exception):
    """The demo cannot continue. The message tells the user why."""
