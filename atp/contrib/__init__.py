"""What other packages get from ATP, each with an extra of its own."""
