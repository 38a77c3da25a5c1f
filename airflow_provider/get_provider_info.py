"""The description of this provider that Airflow reads at its start; data only, so that it imports nothing."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Table Services"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider to Airflow (entry point ``apache_airflow_provider``).

    Connection forms are data here (``conn-fields``, ``ui-field-behaviour``); the hooks'
    class methods for them are deprecated since Airflow 3.2.

    :return: a dict valid against Airflow's ``provider_info.schema.json``.
    """
    return {
        "package-name": "airflow-provider-table-services",
        "name": "Table Services",
        "description": (
            "Ingestion, backfills and table services on the same Apache Hudi tables, "
            "at the same time, safely.\n"
        ),
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://hudi.apache.org/",
                "tags": ["apache", "software"],
            }
        ],
        "hooks": _modules("hooks", "lock_provider", "metastore", "replication", "table"),
        "operators": _modules(
            "operators",
            "alter_table",
            "archive",
            "backfill",
            "clean",
            "clustering",
            "compaction",
            "create_table",
            "index",
            "ingest",
            "replication",
            "rollback",
            "transaction",
        ),
        "sensors": _modules("sensors", "index_ready", "notification_log", "prior_commits", "replication"),
        "triggers": _modules(
            "triggers",
            "index_ready",
            "notification_event",
            "notification_log",
            "prior_commits",
            "replication",
            "spark_job",
            "table_turn",
        ),
        "task-decorators": [
            {"class-name": "airflow_provider.decorators.ingest.ingest_task", "name": "ingest"}
        ],
        "asset-uris": [
            {
                "schemes": ["hudi"],
                "handler": "airflow_provider.assets.hudi.sanitize_uri",
                "factory": "airflow_provider.assets.hudi.table_asset",
                "to_openlineage_converter": "airflow_provider.assets.hudi.convert_asset_to_openlineage",
            }
        ],
        "extra-links": [
            f"airflow_provider.plugins.links.{name}" for name in ("TableLink", "InstantLink", "SparkLink")
        ],
        "connection-types": [_table_lock(), _table_metastore()],
    }


def _modules(package: str, *names: str) -> list[dict[str, Any]]:
    return [
        {
            "integration-name": _INTEGRATION,
            "python-modules": [f"airflow_provider.{package}.{name}" for name in names],
        }
    ]


def _table_lock() -> dict[str, Any]:
    return {
        "connection-type": "table_lock",
        "hook-name": "Table Lock",
        "hook-class-name": "airflow_provider.hooks.lock_provider.LockProviderHook",
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"host": "ZooKeeper hosts", "login": "User (ZooKeeper)"},
            "placeholders": {
                "host": "zk1:2181,zk2:2181,zk3:2181/chroot",
                "password": "of the ZooKeeper user, or of the database's",
            },
        },
        "conn-fields": {
            "provider": {
                "label": "Lock provider",
                "description": (
                    "filesystem: a lock file inside the table, for writers on any machine that sees the "
                    "table's storage. hudi_filesystem: the file of JVM Hudi's FileSystemBasedLockProvider. "
                    "zookeeper: the same lock as JVM Hudi's. metastore: the same, too, in "
                    "any Hive Metastore or in ours. database: a row in PostgreSQL or SQLite. storage: an "
                    "object beside the table, on S3, as JVM Hudi's StorageBasedLockProvider. "
                    "in_process: for writers of one Python process."
                ),
                "schema": {
                    "type": "string",
                    "enum": [
                        "filesystem",
                        "hudi_filesystem",
                        "zookeeper",
                        "metastore",
                        "database",
                        "storage",
                        "in_process",
                    ],
                    "default": "filesystem",
                },
            },
            "timeout_seconds": {
                "label": "Acquire timeout (seconds)",
                "description": "How long a commit waits for the lock before it fails with LockTimeoutError.",
                "schema": {"type": ["number", "null"], "exclusiveMinimum": 0, "default": 60},
            },
            "lease_seconds": {
                "label": "Lease (seconds)",
                "description": (
                    "A holder that has not renewed for so long, because its process died, has lost the lock. "
                    "zookeeper: the session's timeout. metastore by Thrift: not longer than the server's "
                    "hive.txn.timeout, which is what a dead holder's lock lasts."
                ),
                "schema": {"type": ["number", "null"], "exclusiveMinimum": 0, "default": 30},
            },
            "poll_interval_seconds": {
                "label": "Poll interval (seconds)",
                "description": (
                    "The longest pause between two looks while waiting; when empty 0.1, storage 0.5. "
                    "zookeeper does not poll."
                ),
                "schema": {"type": ["number", "null"], "exclusiveMinimum": 0},
            },
            "connection_timeout_seconds": {
                "label": "Connection timeout (seconds)",
                "description": (
                    "zookeeper, metastore, database, storage: after so long without the backend a commit "
                    "fails with LockUnavailableError; when empty 10."
                ),
                "schema": {"type": ["number", "null"], "exclusiveMinimum": 0},
            },
            "path": _text(
                "Lock folder",
                "hudi_filesystem: the folder of the lock's file, as hoodie.write.lock.filesystem.path; when "
                "empty the table's .hoodie. All tables that use a connection with a folder share one lock.",
            ),
            "expire_seconds": {
                "label": "Expiry of a JVM's lock (seconds)",
                "description": (
                    "hudi_filesystem: a JVM's lock file of this age is a dead holder's, as "
                    "hoodie.write.lock.filesystem.expire, which is in minutes; when empty never."
                ),
                "schema": {"type": ["number", "null"], "exclusiveMinimum": 0},
            },
            "base_path": _text(
                "Base path",
                "zookeeper: the node under which the locks are, as hoodie.write.lock.zookeeper.base_path; "
                "when empty /hudi/locks.",
            ),
            "lock_key": _text(
                "Lock key",
                "zookeeper: the lock's name under the base path, as hoodie.write.lock.zookeeper.lock_key; "
                "when empty the table's name. database: the row's key; when empty the table's location. "
                "All tables that use a connection with a key share one lock.",
            ),
            "database": _text(
                "Metastore database",
                "metastore: as hoodie.write.lock.hivemetastore.database; when empty default.",
            ),
            "table": _text(
                "Metastore table",
                "metastore: as hoodie.write.lock.hivemetastore.table; when empty the table's name. All "
                "tables that use a connection with a table share one lock.",
            ),
            "authentication": _choice(
                "ZooKeeper authentication",
                "digest: ZooKeeper's own scheme. sasl: DIGEST-MD5.",
                ["none", "digest", "sasl"],
            ),
            "acl": _choice(
                "ZooKeeper ACL",
                "Access to the locks. open: all clients, as with JVM Hudi. creator: who authenticates alike.",
                ["open", "creator"],
            ),
            "tls": _choice(
                "ZooKeeper TLS",
                "on: the servers' certificates and names are verified. unverified: they are not.",
                ["off", "on", "unverified"],
            ),
            "tls_ca": _text("TLS authorities", "zookeeper: PEM file; when empty the system's."),
            "tls_certificate": _text("TLS certificate", "zookeeper: PEM file of the client's certificate."),
            "tls_key": _text("TLS key", "zookeeper: PEM file of the certificate's key."),
            "tls_key_password": {
                "label": "Password of the TLS key",
                "schema": {"type": ["string", "null"], "format": "password"},
            },
            "url": _text(
                "URL",
                "metastore: thrift://hms1:9083,hms2:9083, or the SQLAlchemy URL of a metastore of ours. "
                "database: for example postgresql+psycopg://hudi@db/lake or sqlite:////srv/lake/locks.db. "
                "Its password goes into the field Password: Airflow hides it there and shows it here.",
            ),
            "test_location": {
                "label": "Folder for the connection test",
                "description": (
                    "Absolute path or URL. Testing the connection takes and releases a lock here; "
                    "when empty, in a temporary folder of the server."
                ),
                "schema": {"type": ["string", "null"]},
            },
        },
    }


def _text(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


def _choice(label: str, description: str, known: list[str]) -> dict[str, Any]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": "string", "enum": known, "default": known[0]},
    }


def _table_metastore() -> dict[str, Any]:
    return {
        "connection-type": "table_metastore",
        "hook-name": "Table Metastore",
        "hook-class-name": "airflow_provider.hooks.metastore.MetastoreHook",
        "ui-field-behaviour": {
            "hidden-fields": [],
            "relabeling": {"schema": "Database"},
            "placeholders": {
                "schema": "file of the database for SQLite, else the name of the database",
                "host": "empty for SQLite; hms1:9083,hms2:9083 for thrift",
            },
        },
        "conn-fields": {
            "url": _text(
                "URL",
                "Of the metastore's database, for example sqlite:////srv/lake/metastore.db, or of "
                "the servers of a Hive Metastore, thrift://hms1:9083,hms2:9083. In place of the standard "
                "fields, except for the password: that goes there, where Airflow hides it, not here.",
            ),
            "dialect": {
                "label": "Dialect",
                "description": (
                    "Without a URL, for one made from the standard fields: sqlite, postgresql with a driver "
                    "that is installed, such as postgresql+psycopg, or thrift."
                ),
                "schema": {"type": ["string", "null"], "default": "sqlite"},
            },
            "tls": _choice(
                "TLS", "thrift: on when the servers have it; certificates are verified.", ["off", "on"]
            ),
            "tls_ca": _text("TLS authorities", "thrift: PEM file; when empty the system's."),
            "tls_certificate": _text("TLS certificate", "thrift: PEM file of the client's certificate."),
            "tls_key": _text("TLS key", "thrift: PEM file of the certificate's key."),
            "storage_conn_id": _text(
                "Storage connection of the page",
                "Id of a connection whose extra holds keyword arguments of the tables' file system, as the "
                "operators' storage_conn_id. With it the page in Airflow reads the tables.",
            ),
            "lock_conn_id": _text(
                "Lock connection of the page",
                "As the operators' lock_conn_id: of type table_lock; when empty table_lock_default.",
            ),
        },
    }
