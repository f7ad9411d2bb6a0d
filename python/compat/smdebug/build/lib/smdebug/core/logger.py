"""smdebug's logger."""

import logging


def get_logger(name: str = "smdebug") -> logging.Logger:
    return logging.getLogger(name)
