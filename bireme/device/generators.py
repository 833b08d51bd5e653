"""`paddle.Generator`: the source of random numbers of a device."""

from __future__ import annotations

from bireme.api.types import DeviceLike
from bireme.core import random
from bireme.core.place import as_place
from bireme.device.memory import as_accelerator


class Generator:
    """The generator of a device. There is one for all devices, so it is always that one.

    >>> Generator().manual_seed(7)  # doctest: +SKIP
    """

    def __new__(cls, device: DeviceLike | None = None) -> random.Generator:
        if device is not None:
            place = as_accelerator(device) if isinstance(device, int) else as_place(device)
            place.check()  # complains about one that is not there
        return random.default_generator


__all__ = ["Generator"]
