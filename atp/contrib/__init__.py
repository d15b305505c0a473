"""Integrations with other packages. ATP has an extra for each of them."""
