"""The versions of the database's schema, the oldest first; a published one never changes."""
