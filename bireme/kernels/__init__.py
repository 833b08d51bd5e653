"""Kernels that replace plain lowerings where they are faster. See `bireme.core.kernels`."""
