"""Settings of the small project; the app ``shop`` comes from the release on the path."""

import os

from tests.settings import *  # noqa: F403

INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "atp", "shop"]
ATP = ATP | {"RELEASE": os.environ["ATP_DEPLOYS_RELEASE"]}  # noqa: F405
TASKS = {}
# It has no pages.
ROOT_URLCONF = __name__
urlpatterns = []
