"""Tailers in the API."""
