"""Reading and writing other frameworks' models."""
