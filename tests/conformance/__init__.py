"""Django's own tests of ``django.tasks``, run on ATPBackend: ``python -m tests.conformance``."""
