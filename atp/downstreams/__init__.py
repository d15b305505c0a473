"""Feature: services that handlers call, protected by a rate limit and a circuit breaker."""
