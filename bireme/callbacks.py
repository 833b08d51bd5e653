"""`paddle.callbacks`: what happens around the steps of `Model.fit`."""

from bireme.hapi.callbacks import Callback, LRScheduler, ModelCheckpoint, ProgBarLogger
from bireme.hapi.monitors import EarlyStopping, ReduceLROnPlateau, VisualDL, WandbCallback

__all__ = [
    "Callback",
    "EarlyStopping",
    "LRScheduler",
    "ModelCheckpoint",
    "ProgBarLogger",
    "ReduceLROnPlateau",
    "VisualDL",
    "WandbCallback",
]
