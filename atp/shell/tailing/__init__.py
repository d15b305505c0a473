"""Tailers in the shell: how far each source has been read, and reading it again."""
