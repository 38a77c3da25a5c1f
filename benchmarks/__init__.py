"""Benchmarks beside peers, in one run; ``docs/performance.md`` has what they found.

All libraries run with the allocator of Arrow that the operators set for their processes (``_ALLOCATOR`` in
``airflow_provider/operators/_base/spark_job.py``). It has to be set before pyarrow is imported.
"""

import os
import sys

if sys.platform == "linux":
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
