"""The Content-Security-Policy of the pages: scripts and styles come from files, never inline."""

from urllib.parse import urlsplit

from django.templatetags.static import static

_POLICY = (
    "default-src 'none'; script-src {static}; style-src {static}; img-src {static}; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def policy():
    """Return the policy, which allows the server of the static files too."""
    parts = urlsplit(static("atp/atp.css"))
    origin = f" {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else ""
    return _POLICY.format(static=f"'self'{origin}")


def policy_in_page():
    """Return the policy as a page can contain it: who may frame a page, only a header can say."""
    return policy().replace("; frame-ancestors 'none'", "")
