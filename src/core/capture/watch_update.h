/*
 * watch_update.h - the update of a parameter: what an optimizer's step changed, from the
 * value before it and the value after.
 */
#ifndef SONDE_WATCH_WATCH_UPDATE_H
#define SONDE_WATCH_WATCH_UPDATE_H

#include <sonde/catalogue.h>
#include <sonde/stats.h>
#include <sonde/tensor.h>

#include <stdbool.h>

typedef struct sonde__watch_update sonde__watch_update;

/* For a tensor of info's shape, and of its dtype: float32 or float64. NULL: no memory. */
sonde__watch_update *sonde__watch_update_create(const sonde_tensor_info *info);
void sonde__watch_update_destroy(sonde__watch_update *update);
/* The next value shown is the first of a step. */
void sonde__watch_update_restart(sonde__watch_update *update);
/* Keeps the first value of a parameter in a step and turns it into the update at the
 * second. Returns true once the update exists. Ignores a value of another shape than
 * declared. vitals: may receive those of the update, taken while it is in cache; *taken is
 * set if so. NULL: they are not wanted. */
bool sonde__watch_update_show(sonde__watch_update *update, const sonde_view *view,
                              sonde_vitals *vitals, bool *taken);
/* The update, contiguous. Borrowed until the next value is shown. */
const sonde_view *sonde__watch_update_value(const sonde__watch_update *update);

#endif
