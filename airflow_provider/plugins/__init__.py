"""The page in Airflow: what tables, writers, locks, transactions and consumers are at, for people on call.

``plugin`` tells Airflow what there is; ``app`` answers the requests, all of them GET, none without a login;
``metastores`` finds what to look at, and ``reading`` keeps one slow storage from holding up the rest. The
page itself is plain JavaScript in ``static``, and begins with ``page.js``; ``links`` leads to it from a task.
What it shows comes from :mod:`airflow_provider.reports`.
"""

from airflow_provider.plugins.plugin import TableServicesPlugin

__all__ = ["TableServicesPlugin"]
