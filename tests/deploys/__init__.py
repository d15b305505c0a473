"""Deploys: the look before them, and rolling from one release of a project to the next."""
