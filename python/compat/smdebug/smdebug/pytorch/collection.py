"""Collection, CollectionKeys and CollectionManager."""

from ..collection import Collection, CollectionKeys, CollectionManager  # noqa: F401
