"""Catalog, transactions, write ids and the notification log: Hive's model, on SQLAlchemy.

Begin at :func:`airflow_provider.metastore.metastore.open_metastore`; around one write into
one table use :func:`airflow_provider.metastore.table_transaction.table_transaction`.
"""
