"""The interface of a metastore; a database and a Thrift client implement it.

The Protocols describe each method once: what it does, its arguments, its errors. The database's
implementation is in :mod:`airflow_provider.metastore.api`, the Thrift client's in
:mod:`airflow_provider.metastore.thrift.client`; mypy checks both against the Protocol where
:func:`~airflow_provider.metastore.any_metastore.open_metastore` returns them. Begin with
:class:`~airflow_provider.metastore.interface.metastore.AnyMetastore`.
"""

from airflow_provider.metastore.interface.metastore import AnyMetastore

__all__ = ["AnyMetastore"]
