/*
 * options.h - option structs: how a program fills them in.
 *
 * A struct whose name ends in _options begins with its own size, so that a program built
 * against an older header keeps working: fields that it does not have get their defaults.
 * A field left zero means its default.
 *
 *     sonde_watch_options options = {.size = sizeof options, .hook = hook};
 *     err = sonde_watch_create(&options, &watch, &diag);
 *
 * (in C++: sonde_watch_options options = {}; options.size = sizeof options;) or, in one
 * expression, in C:
 *
 *     err = sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag);
 *
 * A struct with defaults other than zero has a function that sets them and size, such as
 * sonde_print_options_default; change the fields afterwards.
 *
 * A size that no version of the struct can have, 0 among them, is SONDE_EINVAL with the
 * name of the struct. A larger struct than this library knows, from a newer header, is
 * accepted while the bytes that the library does not know are 0, else SONDE_EUNSUPPORTED.
 *
 * Options are read during the call and copied, except for what their header says is
 * borrowed. Any number of threads may read one struct.
 */
#ifndef SONDE_OPTIONS_H
#define SONDE_OPTIONS_H

#include <stddef.h>

/* A pointer to a sonde_<name>_options with these fields, which lives as long as the
 * enclosing block: SONDE_OPTIONS(sonde_watch, .hook = hook). At least one field. */
#ifndef __cplusplus
#define SONDE_OPTIONS(name, ...)                                                         \
    (&(name##_options){.size = sizeof(name##_options), __VA_ARGS__})
#endif

#endif
