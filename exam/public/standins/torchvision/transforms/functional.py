"""Functions that work on a picture: none is needed."""
