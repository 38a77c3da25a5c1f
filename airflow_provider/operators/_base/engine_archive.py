"""The engine as one file that a Spark cluster can import."""

from __future__ import annotations

import zipfile
from pathlib import Path

import airflow_provider

# A driver or an executor only reads and writes tables. The archive includes the metastore for a lock in a
# database; with another lock no module imports it.
_NOT_FOR_CLUSTERS = frozenset(
    {
        "assets",
        "decorators",
        "hooks",
        "operators",
        "sensors",
        "task_groups",
        "triggers",
        "plugins",
        "reports",
        "cli",
        "get_provider_info.py",
    }
)
_SOURCES = frozenset({".py", ".avsc", ".json", ".thrift"})


def write_engine_archive(folder: Path) -> Path:
    """Pack the part of this package that a Spark job needs.

    :param folder: the folder for the file.
    :return: a zip file, for ``py_files``; a cluster's Python needs only this file and the libraries of
        docs/spark.md.
    """
    package = Path(airflow_provider.__file__).parent
    archive = folder / "airflow_provider.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            inside = path.relative_to(package)
            if path.suffix in _SOURCES and inside.parts[0] not in _NOT_FOR_CLUSTERS:
                packed.write(path, f"{package.name}/{inside}")
    return archive
