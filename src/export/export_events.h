/*
 * export_events.h - TensorBoard's event files. Internal.
 *
 * A file is TFRecords, each an Event of tensorflow/core/util/event.proto:
 *
 *     u64 length | u32 masked CRC-32C of it | Event | u32 masked CRC-32C of the Event
 *
 *     Event          1 wall_time double   2 step int64   3 file_version string   5 summary
 *     Summary        1 value (any number)
 *     Value          1 tag string   2 simple_value float   5 histo
 *     HistogramProto 1 min 2 max 3 num 4 sum 5 sum_squares double
 *                    6 bucket_limit 7 bucket: packed double
 */
#ifndef SONDE_EXPORT_EXPORT_EVENTS_H
#define SONDE_EXPORT_EXPORT_EVENTS_H

#include "export/export_file.h"

#include <sonde/sketch.h>
#include <sonde/stats.h>

/* A message that grows. Once memory was out it stays as it is, and failed. */
typedef struct sonde__export_message {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} sonde__export_message;

typedef struct sonde__export_events {
    sonde__export_out_file file;
    sonde__export_crc crc;
    double wall_time; /* of the next event; may be set */
    sonde__export_message event, summary, value, histogram, limits, counts;
} sonde__export_events;

/* Writes the event that every file begins with. */
SONDE_API sonde_err sonde__export_events_open(sonde__export_events *events,
                                              const char *path, double wall_time,
                                              sonde_diag *diag);
/* Rounds to float32, which is what TensorBoard keeps. */
SONDE_API sonde_err sonde__export_events_scalar(sonde__export_events *events,
                                                const char *tag, int64_t step,
                                                double value, sonde_diag *diag);
/* The sketch's bins as buckets, signs and zeros apart; NaN and infinities are in none. */
SONDE_API sonde_err sonde__export_events_histogram(sonde__export_events *events,
                                                   const char *tag, int64_t step,
                                                   const sonde_vitals *vitals,
                                                   const sonde_sketch *sketch,
                                                   sonde_diag *diag);
/* Publishes; whatever it returns, what the events have is freed. */
SONDE_API sonde_err sonde__export_events_close(sonde__export_events *events,
                                               sonde_diag *diag);
SONDE_API void sonde__export_events_abandon(sonde__export_events *events);

#endif
