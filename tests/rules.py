"""A project's rule about who may do what, as ``ATP["AUTHORIZE"]`` names it."""

# What each permission holds on, and what all others hold on; a test sets it.
HOLDS = {}


def may(user, permission):
    return HOLDS.get(permission, HOLDS.get("others"))
