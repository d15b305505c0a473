"""Submissions: calls that are bound to the signature, checked and serialized."""
