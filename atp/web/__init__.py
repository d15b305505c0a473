"""What pages, API, admin and shell share."""
