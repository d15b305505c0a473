"""A Django project that uses ATP on a real digital elevation model."""
