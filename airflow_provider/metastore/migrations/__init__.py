"""Migrations of the metastore's database, run by Alembic; each release adds at most one version."""
