"""The metadata table: what a table's files hold, kept beside it so that nobody has to look."""
