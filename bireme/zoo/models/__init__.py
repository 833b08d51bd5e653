"""The families: one file each, imported when a config names it. README.md has the contract."""
