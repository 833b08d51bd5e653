"""The examples in the real wheel's docstrings, run by it and, unchanged, by Bireme.

extracting  the examples of every public name, as programs
running     one process per framework, a fork per example: what it printed, what is left
comparing   two records of an example; what differs between two seeds of the wheel is random
"""
