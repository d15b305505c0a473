"""Entry point for synchronous (WSGI) web servers."""

import gc
import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")
application = get_wsgi_application()
# A full garbage collection stops the process, and takes longer the more objects there are.
# Objects that are loaded now stay, so no collection has to examine them again.
_ = get_resolver().url_patterns
gc.freeze()
