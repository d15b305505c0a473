"""The subcommands of ``manage.py atp``."""
