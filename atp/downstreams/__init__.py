"""The services that handlers call, each protected by a rate limit and a circuit breaker."""
