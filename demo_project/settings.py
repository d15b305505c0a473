"""Settings of the demo, which uses SQLite unless DATABASE_URL names another database."""

from pathlib import Path

import environ

import atp

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
# The demo writes its database, results, pictures and logs to this directory.
DEMO_DIR = Path(env("DEMO_DIR", default=str(BASE_DIR / ".demo"))).absolute()
DEMO_DIR.mkdir(parents=True, exist_ok=True)

SECRET_KEY = env("SECRET_KEY", default="for the demo on your own machine only")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

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
    "drf_spectacular_sidecar",
    "atp",
    "demo_project",
]

MIDDLEWARE = [
    "atp.web.liveness.liveness_middleware",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "demo_project.urls"
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

WSGI_APPLICATION = "demo_project.wsgi.application"

if env("DATABASE_URL", default=""):
    DATABASES = {"default": env.db("DATABASE_URL")}
else:
    DATABASES = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DEMO_DIR / "db.sqlite3"}
    }
_engine = DATABASES["default"]["ENGINE"].rpartition(".")[2]
_options = DATABASES["default"].setdefault("OPTIONS", {})
if _engine == "sqlite3":
    # Settings for SQLite as a queue. WAL lets others read while one connection writes. Every
    # transaction takes the write lock when it begins, and waits for the lock instead of failing.
    _options.update(
        transaction_mode="IMMEDIATE",
        timeout=20,
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    )
elif _engine == "postgresql":
    # If a client disappears, the server stops the client's query within a second.
    _options.setdefault("options", "-c client_connection_check_interval=1000")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# With --dask the terrain is analysed on a cluster of Dask.
ATP = {}
if address := env("DASK", default=""):
    ATP["EXECUTORS"] = {"dask": {"BACKEND": "atp.executors.Dask", "ADDRESS": address, "SLOTS": 4}}

MEDIA_ROOT = DEMO_DIR / "media"
MEDIA_URL = "media/"
STATIC_URL = "static/"

USE_TZ = True
TIME_ZONE = "UTC"

# A user who is logged in to the pages can call the API from a browser. Programs use a password.
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.SessionAuthentication",
        "rest_framework.authentication.BasicAuthentication",
    ],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "ATP",
    "DESCRIPTION": "Asynchronous task processing for Django.",
    "VERSION": atp.__version__,
    "OAS_VERSION": "3.1.0",
    "SERVERS": [{"url": "/", "description": "This server."}],
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    # Scripts and styles come from the sidecar package, not from another host.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
