"""The parts of torchvision that training programs use, with drawn pictures instead of downloads."""

from . import datasets, transforms, utils  # noqa: F401
