"""What the pages and the API share: who may do what, filters, problems, raw bodies, actions."""
