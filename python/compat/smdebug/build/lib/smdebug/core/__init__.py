"""Where programs import parts of the configuration from."""
