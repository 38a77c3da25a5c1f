"""What every way to ingest must do, as tests without a runner: pytest collects nothing here.

``tests/unit/ingestion`` imports these tests and runs them with Arrow in this process, ``tests/spark`` with
Spark. Each gives the fixture ``lake`` (see ``lake.py``), which says how rows are written. Begin with
``operations.py``.
"""
