"""Modules that the pages, the API, the admin and the shell share."""
