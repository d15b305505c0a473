"""The interface for authors of handlers."""
