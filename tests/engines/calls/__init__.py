"""The same calls of Hive's protocol to two servers, and the differences of their answers.

A module for each part of the protocol has a function ``calls``, which sends its requests through an
:class:`~.asking.Asking`, which keeps each answer. :func:`~.compared.differences` compares the answers field
by field.
"""
