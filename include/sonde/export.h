/*
 * export.h - what a symbol of a Sonde library looks like from outside.
 */
#ifndef SONDE_EXPORT_H
#define SONDE_EXPORT_H

#if defined(__GNUC__)
#define SONDE_API __attribute__((visibility("default")))
#define SONDE_CHECKED __attribute__((warn_unused_result))
#define SONDE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SONDE_API
#define SONDE_CHECKED
#define SONDE_PRINTF(fmt, args)
#endif

#endif
