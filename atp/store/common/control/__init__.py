"""Control: gates, limits, orders, asks and changes, which operators set."""
