"""Speed claims of Bireme, one command each: `python -m bench eager|cold|memory|record`."""
