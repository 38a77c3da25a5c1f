"""Asynchronous indexing (RFC-45): indexes are planned, built, and dropped while writers go on."""
