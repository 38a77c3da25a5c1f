"""The same calls of Hive's protocol to two servers, and where their answers differ.

A module for each part of the protocol has a function ``calls``: it asks through an :class:`~.asking.Asking`,
which keeps each answer. :func:`~.compared.differences` says which answers are not the same, by their fields.
"""
