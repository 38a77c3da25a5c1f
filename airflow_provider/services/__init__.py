"""Table services: they keep a table fast and small beside its writers, undo commits, and change the table.

``clustering`` rewrites data files, ``table_compaction`` those of merge-on-read tables, ``compaction`` those
of the metadata table. ``cleaning`` deletes files that nobody needs, ``orphans`` finds files of no commit,
``failed_writes`` rolls dead writers back, ``archival`` shortens the timeline. ``savepoint`` keeps a snapshot
and ``restore`` goes back to one. ``alter_table`` and ``table_options`` change a table, ``upgrade`` brings one
from an earlier version of Hudi.

Reading begins at ``clustering/clustering.py``: like every service it makes a plan under the table lock, by
:func:`airflow_provider.concurrency.schedule`, and executes the plan later, perhaps in another process.
``cleaning/clean_plan.py`` decides which files a clean deletes, and which ones writers and readers still need.

What may be touched: the choice of a service's plan, and its execution. A service must yield to writers of
higher priority. Another process must be able to finish or roll back whatever a service has begun:
``tests/unit/services`` kills and pauses each service.
"""
