"""CollectionManager."""

from ..collection import CollectionManager  # noqa: F401
