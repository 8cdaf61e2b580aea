"""The user's command. Every sub-command imports what it needs when it runs, so that help appears at once."""
