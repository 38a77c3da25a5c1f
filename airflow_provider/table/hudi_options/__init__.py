"""Configuration by Hudi's own keys: the known options, their meaning here, and their contradictions.

Begin with :class:`HudiOptions`; ``registry`` lists the options. An option's topic puts it into
docs/configuration.md.

Names, alternatives and units are those of Hudi 1.1 (``HoodieMetadataConfig``, ``HoodieWriteConfig``,
``HoodieLockConfig``, ``LockConfiguration``, ``StorageBasedLockConfig``, ``HoodieCleanConfig``,
``HoodieArchivalConfig``, ``HoodieClusteringConfig``, ``HoodieStorageConfig``, ``HoodieCompactionConfig``,
``HoodieMemoryConfig``).
"""

from __future__ import annotations

from airflow_provider.table.hudi_options.compaction_options import LIMITS_OF_STRATEGIES, TRIGGERS
from airflow_provider.table.hudi_options.index_options import IndexOptions
from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.hudi_options.options import EffectiveOptions, HudiOptions
from airflow_provider.table.hudi_options.registry import OPTIONS

__all__ = [
    "LIMITS_OF_STRATEGIES",
    "OPTIONS",
    "TRIGGERS",
    "EffectiveOptions",
    "HudiOptions",
    "IndexOptions",
    "Option",
    "Topic",
]
