"""What the benchmarks share: databases, daemons, batches of tasks, and reports of figures."""
