"""Where a process stages the content of an instant before its entry is put."""

STAGED_FOLDER = ".hoodie/commit_log/staged"


def staged_metadata_path(instant: str) -> str:
    """Where a writer stages its commit metadata before its entry is put."""
    return f"{STAGED_FOLDER}/{instant}.avro"


def staged_plan_path(instant: str) -> str:
    """Where a plan is staged before its entry is put.

    The path differs from that of the same instant's commit metadata. Otherwise a publisher that was paused
    right before it moved the plan would move the metadata when it wakes up.
    """
    return f"{STAGED_FOLDER}/{instant}.requested.avro"
