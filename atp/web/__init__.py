"""The part that pages and API share: permissions, filters, forms, problems, raw bodies."""
