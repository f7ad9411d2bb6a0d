"""Collection and CollectionKeys."""

from ..collection import Collection, CollectionKeys  # noqa: F401
