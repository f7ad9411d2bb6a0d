"""The hook of the program."""

from .hook import del_hook, get_hook, set_hook  # noqa: F401
