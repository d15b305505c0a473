"""Dead letters: failed Instances, grouped by cause, and how to redrive or delete them."""
