"""Why something does not run: facts are gathered, causes judge them, words tell them."""
