"""What both databases share: the parts of the portable store, in Django's ORM."""
