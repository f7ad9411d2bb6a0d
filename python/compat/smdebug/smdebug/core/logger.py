"""smdebug's logger, and its level from SMDEBUG_LOG_LEVEL or, as it was first called,
TORNASOLE_LOG_LEVEL: debug, info, warning, error, critical or off. Without them it is the program's,
as all of Python's loggers are."""

import logging
import os
import sys

_LEVELS = ("debug", "info", "warning", "error", "critical", "off")


def get_logger(name: str = "smdebug") -> logging.Logger:
    return logging.getLogger(name)


def set_level_from_environment() -> None:
    name = next((key for key in ("SMDEBUG_LOG_LEVEL", "TORNASOLE_LOG_LEVEL")
                 if os.environ.get(key)), None)
    if name is None:
        return
    level, logger = os.environ[name].strip().lower(), get_logger()
    if level not in _LEVELS:
        logger.warning("%s: '%s' has no effect (expected %s)", name, level, ", ".join(_LEVELS))
        return
    logger.setLevel(logging.CRITICAL + 1 if level == "off" else getattr(logging, level.upper()))
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(asctime)s] [%(name)s] [%(levelname)s] "
                                               "%(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
