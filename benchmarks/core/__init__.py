"""What the benchmarks share: a database, and how figures are reported."""
