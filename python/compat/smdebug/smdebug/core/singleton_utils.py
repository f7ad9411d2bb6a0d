"""The hook of the program."""

from ..pytorch.hook import del_hook, get_hook, set_hook  # noqa: F401
