"""Images: transforms, datasets read from local files, classic networks, detection ops."""

from bireme.vision import datasets, models, ops, transforms
from bireme.vision.datasets import *  # noqa: F403 (Paddle has them here too)
from bireme.vision.image import get_image_backend, image_load, set_image_backend
from bireme.vision.models import *  # noqa: F403
from bireme.vision.transforms import *  # noqa: F403

__all__ = [
    "datasets",
    "get_image_backend",
    "image_load",
    "models",
    "ops",
    "set_image_backend",
    "transforms",
]
