/*
 * save_config.h - which steps of a collection are saved, and what of them.
 *
 *     due(s) = s in save_steps                                           if they are given
 *            = start_step <= s < end_step and s mod every == 0           otherwise
 *     or a tensor that when_nan selects held a NaN or an infinity at step s
 *
 * where s counts the steps of the mode. Later layers win, field by field: hook, hook's
 * mode, collection, collection's mode. A layer that gives every, start_step or end_step
 * and no save_steps also cancels the save_steps of the layers before it.
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_SAVE_CONFIG_H
#define SONDE_SAVE_CONFIG_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field that is SONDE_UNSET is taken from the layer before. */
#define SONDE_UNSET INT64_MIN
typedef struct sonde_save_config {
    int64_t every;      /* 500 */
    int64_t start_step; /* 0 */
    int64_t end_step;   /* exclusive; SONDE_SCHEDULE_NEVER: no end; 0 with start 0: off */
    const int64_t *save_steps; /* NULL: from the layer before */
    size_t save_step_count;
    const char *when_nan; /* a selector; "": none; NULL: from the layer before */
} sonde_save_config;
/* All fields unset. */
SONDE_API sonde_save_config sonde_save_config_unset(void);

/* Which reductions are kept; bit i is sonde_stat i. With any, raw values are dropped
 * unless save_raw_tensor. All statistics are in one row of vital signs, so any of them
 * brings all. */
typedef struct sonde_reduction_config {
    uint32_t stats;
    bool histogram; /* the sketch */
    bool save_raw_tensor;
    bool norms;      /* of the statistics, those that norms have (<sonde/stats.h>) */
    bool save_shape; /* accepted for smdebug; the run's catalogue has all shapes anyway */
} sonde_reduction_config;

#ifdef __cplusplus
}
#endif

#endif
