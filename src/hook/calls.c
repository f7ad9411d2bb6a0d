/*
 * calls.c - the calls of a recorder, as a hook makes them.
 */
#include "hook/hook_state.h"

const sonde__recorder_calls sonde__recorder_itself = {
    .create = sonde_recorder_create,
    .close = sonde_recorder_close,
    .expect = sonde_recorder_expect,
    .collections = sonde_recorder_collections,
    .put = sonde_recorder_put,
    .put_vitals = sonde_recorder_put_vitals,
    .put_sketch = sonde_recorder_put_sketch,
    .end_step = sonde_recorder_end_step,
    .next = sonde_recorder_next,
};
