"""A service with a small router of its own, for the applications that need no framework."""
