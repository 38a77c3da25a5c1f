"""A table whose columns change by what is written into it, beside a plain model of it."""

from __future__ import annotations
