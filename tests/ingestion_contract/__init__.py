"""The promises of every ingestion engine, as tests without a runner: pytest collects nothing here.

``tests/unit/ingestion`` imports these tests and runs them with Arrow in this process, ``tests/spark`` with
Spark. Each defines the fixture ``lake`` (see ``lake.py``), which writes rows by its engine. Begin with
``operations.py``.
"""
