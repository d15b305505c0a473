"""The pages for operators."""
