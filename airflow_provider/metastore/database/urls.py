"""URLs of a metastore's database: their valid forms, and the secrets in them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from airflow_provider.exceptions import InvalidInputError

_SECRET_WORDS = ("password", "passwd", "secret", "token", "key")


def parse_url(url: str) -> URL:
    """Check a metastore's URL.

    :param url: ``sqlite:////absolute/path.db`` or ``postgresql+<driver>://user:password@host/database``.
    :raises InvalidInputError: when the text is no URL, one of another database or of an asynchronous driver,
        or an SQLite URL without an absolute path. The message never holds the URL, which may hold a password.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        is_async = backend in {"sqlite", "postgresql"} and parsed.get_dialect().is_async
    except (ArgumentError, ValueError):
        raise InvalidInputError(
            "the metastore URL cannot be parsed; give sqlite:////absolute/path.db "
            "or postgresql+psycopg://user:password@host/database"
        ) from None
    if backend not in {"sqlite", "postgresql"}:
        raise InvalidInputError(
            f"a metastore cannot live in {backend!r}; give a sqlite or postgresql URL", backend=backend
        )
    if is_async:
        raise InvalidInputError(
            f"the metastore URL names the asynchronous driver {parsed.drivername!r}; name one like "
            "postgresql+psycopg",
            driver=parsed.drivername,
        )
    if backend == "sqlite":
        path = parsed.database or ""
        if not Path(path).is_absolute():
            raise InvalidInputError(
                f"the metastore's SQLite file {path!r} has no absolute path; every process must find the "
                "same file: give sqlite:////absolute/path.db (four slashes)",
                path=path,
            )
    return parsed


def database_exists(url: str) -> bool:
    """Whether a database exists. Only SQLite's can be missing here; any other counts as existing.

    :param url: see :func:`parse_url`.
    :raises InvalidInputError: see :func:`parse_url`.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        return True
    path = Path(parsed.database or "")
    # When a folder cannot be looked into, for example because its disk is away, opening the database raises
    # the reason.
    return path.exists() or any(each.exists() and not each.is_dir() for each in path.parents)


def mask_url(url: URL) -> str:
    """The URL with every secret in it replaced by ``***``."""
    secret = {name for name in url.query if any(word in name.lower() for word in _SECRET_WORDS)}
    masked = url.difference_update_query(secret).update_query_dict(dict.fromkeys(secret, "***"))
    return masked.render_as_string(hide_password=True).replace(quote("***"), "***")


def secrets_in(url: URL) -> list[str]:
    """Every secret in a URL; no message may hold one."""
    values = [url.password] if url.password else []
    for name, value in url.query.items():
        if any(word in name.lower() for word in _SECRET_WORDS):
            values.extend([value] if isinstance(value, str) else value)
    return [str(value) for value in values]
