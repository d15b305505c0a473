"""The subcommands that tell why something does not run, and what was counted."""
