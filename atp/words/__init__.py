"""Plain values that people read and write: options, rates, orders, times and sizes as text."""
