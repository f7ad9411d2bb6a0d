"""S3Trial."""

from .trial import S3Trial  # noqa: F401
