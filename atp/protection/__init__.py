"""The protection of downstreams as plain values: rate, breaker, probes. No database, no clock."""
