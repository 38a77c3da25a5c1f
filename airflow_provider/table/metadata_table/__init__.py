"""The metadata table on disk (MDT): what a table's files hold, kept beside it so that nobody has to look.

A merge-on-read table of its own in ``.hoodie/metadata``, with a partition for each index. Here is how
its records, file groups and instants are read and written; planning and building an index, and
keeping it while others write, are not.
"""
