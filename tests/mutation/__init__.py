"""`make mutants`: change the commit protocol bit by bit, and check that a test, or the type checker, notices.

mutmut makes the changes and runs the tests (`[tool.mutmut]` in pyproject.toml). ``selection`` is a plugin of
pytest that keeps a run short. ``report`` writes docs/mutants.md: the survivors, and the reason in
``harmless.toml`` why each is harmless.
"""
