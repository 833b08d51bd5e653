"""Training without a loop of one's own: Model, its callbacks, and tables about networks."""

from bireme.hapi.flops import flops
from bireme.hapi.model import Model
from bireme.hapi.summary import summary

__all__ = ["Model", "flops", "summary"]
