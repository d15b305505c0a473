"""The pages of tailers."""
