"""The page in Airflow for people on call: tables, writers, locks, transactions and consumers.

``plugin`` registers the page with Airflow. ``app`` answers the requests, all of them GET, none without a
login. ``metastores`` finds the tables, and ``reading`` prevents one slow storage from delaying the rest. The
page itself is plain JavaScript in ``static``, and begins with ``page.js``; ``links`` leads to it from a task.
Its content comes from :mod:`airflow_provider.reports`.
"""

from airflow_provider.plugins.plugin import TableServicesPlugin

__all__ = ["TableServicesPlugin"]
