"""Loads every row file before the tests are collected."""

import importlib
import pkgutil

import tests.parity as package

for found in pkgutil.iter_modules(package.__path__):
    if found.name.startswith("rows_"):
        importlib.import_module(f"tests.parity.{found.name}")
