"""Settings of the tests; :mod:`tests.environment` says which database they run on."""

from importlib.util import find_spec

from . import environment, log_sinks, patience

SECRET_KEY = "of the tests only"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "atp",
    "demo_project",
    "tests.app",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

ROOT_URLCONF = "tests.urls"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "atp:overview"
LOGOUT_REDIRECT_URL = "login"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": environment.database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# As Django from 6.1 on has it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

# A login is made often here and guards nothing.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

MEDIA_ROOT = environment.folder() / "media"
MEDIA_URL = "media/"
STATIC_URL = "static/"

USE_TZ = True
TIME_ZONE = "UTC"

SCRATCH_DIR = environment.folder() / "scratch"
SCRATCH_DIR.mkdir(exist_ok=True)

# Shorter than the defaults, so that what waits for a lease does not wait long.
ATP = patience.scaled(
    {
        "SCRATCH_DIR": str(SCRATCH_DIR),
        "LEASE": 8.0,
        "KILL_AFTER": 6.0,
        "STATEMENT_TIMEOUT": 4.0,
        "RENEW_EVERY": 1.0,
        "POLL_EVERY": 0.2,
        "SWEEP_EVERY": 0.5,
        "BACKOFF": 0.1,
        "BACKOFF_MAX": 1.0,
        "EXECUTORS": {"engine": {"BACKEND": "atp.executors.Fork", "SLOTS": 8}},
    }
    | environment.atp_settings()
)

# Nothing, but in daemons of tests/daemon/test_log_sinks.py and of the chaos suite.
LOGGING = log_sinks.config()

# Where there is django.tasks, or its backport.
if find_spec("django.tasks") or find_spec("django_tasks"):
    TASKS = {
        "default": {
            "BACKEND": "atp.backend.ATPBackend",
            "QUEUES": [],
            "OPTIONS": {
                "modules": ["tests.backend.tasks"],
                "types": {
                    "tests.backend.tasks.*": {"backoff": 0},
                    "*.stubborn": {"max_retries": 2},
                    "*.unkept": {"retention": 0},
                },
            },
        }
    }
