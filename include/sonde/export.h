/*
 * export.h - what a symbol of a Sonde library looks like from outside.
 */
#ifndef SONDE_EXPORT_H
#define SONDE_EXPORT_H

#include <stddef.h>

#if defined(__GNUC__)
#define SONDE_API __attribute__((visibility("default")))
#define SONDE_CHECKED __attribute__((warn_unused_result))
#define SONDE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SONDE_API
#define SONDE_CHECKED
#define SONDE_PRINTF(fmt, args)
#endif

/* === option structs ================================================================== */

/*
 * Option structs: how a program fills them in.
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

/* A pointer to a sonde_<name>_options with these fields, which lives as long as the
 * enclosing block: SONDE_OPTIONS(sonde_watch, .hook = hook). At least one field. */
#ifndef __cplusplus
#define SONDE_OPTIONS(name, ...)                                                         \
    (&(name##_options){.size = sizeof(name##_options), __VA_ARGS__})
#endif

#endif
