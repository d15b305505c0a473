"""The pages: operators watch and steer the queue in a browser."""
