"""Locks that the JVM's Hudi shares: its ``FileSystemBasedLockProvider`` and ``StorageBasedLockProvider``."""
