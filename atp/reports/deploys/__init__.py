"""Deploys: which releases run, what fits them, and what would fail under this code."""
