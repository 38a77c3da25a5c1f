"""Table services: what keeps a table fast and small, beside writers, and what takes it back.

``clustering`` rewrites data files, ``table_compaction`` those of merge-on-read tables, ``compaction`` those
of the metadata table. ``cleaning`` deletes files
that nobody needs, ``orphans`` finds files of no commit, ``failed_writes`` rolls dead writers back,
``archival`` shortens the timeline. ``savepoint`` and ``restore`` keep a snapshot and go back to one;
``alter_table`` and ``table_options`` change a table, ``upgrade`` brings one from an earlier version of
Hudi.

Reading begins at ``clustering/clustering.py``: like every service it makes a plan under the table lock, by
:func:`airflow_provider.concurrency.schedule`, and carries the plan out later, perhaps in another process.
``cleaning/clean_plan.py`` says what a clean deletes, and who holds what back.

What may be touched: what a service plans, and how it carries that out. A service must give way to writers
of higher priority, and whatever it has begun somebody else must be able to finish or to roll back:
``tests/unit/services`` kills and pauses each of them.
"""
