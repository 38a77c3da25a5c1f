"""Table services: clustering, cleaning, restore, archival, compaction; their plans and their execution."""
