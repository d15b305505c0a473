"""The isolation of attempts: what one leaves in its worker, the next does not find."""
