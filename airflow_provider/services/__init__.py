"""Table services: they keep a table fast and small beside its writers, undo commits, and change the table.

``clustering`` rewrites data files. ``table_compaction`` merges the log files of merge-on-read tables, and
``compaction`` those of the metadata table. ``cleaning`` deletes files that no reader needs, ``orphans`` finds
files of no commit, ``failed_writes`` rolls dead writers back, ``archival`` shortens the timeline.
``savepoint`` keeps a snapshot and ``restore`` goes back to one. ``alter_table`` and ``table_options`` change
a table. ``upgrade`` brings a table from an earlier version of Hudi.

Begin to read at ``clustering/clustering.py``: like every service it makes a plan under the table lock, by
:func:`airflow_provider.concurrency.schedule`, and executes the plan later, perhaps in another process.
``cleaning/clean_plan.py`` decides which files a clean deletes, and which ones writers and readers still need.

The choice of a service's plan, and its execution, may be changed. A service must yield to writers of higher
priority. Another process must be able to finish or roll back every step that a service has begun:
``tests/unit/services`` kills and pauses each service.
"""
