"""Image datasets that read local files; nothing is downloaded."""

from bireme.vision.datasets.archives import VOC2012, Flowers
from bireme.vision.datasets.cifar import Cifar10, Cifar100
from bireme.vision.datasets.folder import DatasetFolder, ImageFolder
from bireme.vision.datasets.mnist import MNIST, FashionMNIST

__all__ = [
    "MNIST",
    "VOC2012",
    "Cifar10",
    "Cifar100",
    "DatasetFolder",
    "FashionMNIST",
    "Flowers",
    "ImageFolder",
]
