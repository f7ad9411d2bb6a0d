/*
 * export_board.h - a run for TensorBoard: a folder with a folder for each mode (of each
 * worker), which contains one event file. Internal.
 *
 *     OUT/train/events.out.tfevents.1769860800.sonde
 *     OUT/w0001-train/...                              in a run of several workers
 *
 * All of it is made in a folder beside OUT, which is then renamed to OUT.
 *
 * An event file is TFRecords, each an Event of tensorflow/core/util/event.proto:
 *
 *     u64 length | u32 masked CRC-32C of it | Event | u32 masked CRC-32C of the Event
 *
 *     Event          1 wall_time double  2 step int64  3 file_version string  5 summary
 *     Summary        1 value (any number)
 *     Value          1 tag string   2 simple_value float   5 histo
 *     HistogramProto 1 min 2 max 3 num 4 sum 5 sum_squares double
 *                    6 bucket_limit 7 bucket: packed double
 */
#ifndef SONDE_EXPORT_EXPORT_BOARD_H
#define SONDE_EXPORT_EXPORT_BOARD_H

#include "export/export_file.h"
#include "export/export_walk.h"

#include <sonde/sketch.h>
#include <sonde/stats.h>

/* Writes scalars and histograms of the tensors asked for. */
sonde_err sonde__export_tensorboard(sonde__export *work, const char *path,
                                    sonde_diag *diag);

/* --- an event file ---------------------------------------------------------------- */

/* A message that grows. After running out of memory it stays as it is. */
typedef struct sonde__export_message {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} sonde__export_message;

typedef struct sonde__export_events {
    sonde__whole_file file;
    sonde__export_crc crc;
    double wall_time; /* of the next event, seconds since 1970; may be set */
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
/* The sketch's bins become buckets; NaN and infinities are in none. */
SONDE_API sonde_err sonde__export_events_histogram(sonde__export_events *events,
                                                   const char *tag, int64_t step,
                                                   const sonde_vitals *vitals,
                                                   const sonde_sketch *sketch,
                                                   sonde_diag *diag);
/* Publishes the file. Frees the memory of events, whatever it returns. */
SONDE_API sonde_err sonde__export_events_close(sonde__export_events *events,
                                               sonde_diag *diag);
SONDE_API void sonde__export_events_abandon(sonde__export_events *events);

#endif
