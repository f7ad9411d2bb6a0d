/*
 * attach.c - steps and ids of those who observe a producer (attach.h).
 */
#include "observe/attach.h"

#include "base/macros.h"
#include "base/fail.h"
#include "base/memory.h"

#include <string.h>

sonde_coordinate sonde__observe_take_step(sonde__observe_steps *steps, sonde_mode mode,
                                          int64_t at_least)
{
    int64_t *const global = &steps->next[SONDE_MODE_GLOBAL];
    int64_t *const next = &steps->next[mode];

    if (mode != SONDE_MODE_GLOBAL) {
        *next = SONDE_MAX(*next, at_least);
    }
    const sonde_coordinate at = {
        .mode = mode, .global_step = *global, .mode_step = *next};
    *next = at.mode_step + 1;
    *global = at.global_step + 1;
    return at;
}

uint32_t sonde__catalogue_named(const sonde_catalogue *catalogue, const char *name)
{
    uint32_t id = 0;
    const bool found = sonde_catalogue_find(catalogue, name, &id, NULL) == SONDE_OK;

    return found && strcmp(sonde_catalogue_info(catalogue, id)->name, name) == 0
               ? id
               : SONDE_NO_TENSOR;
}

bool sonde__observe_map_reserve(sonde__observe_map *map)
{
    return sonde__reserve(&map->ids, &map->capacity, sonde_catalogue_count(map->from),
                          sizeof *map->ids);
}

sonde_err sonde__observe_map_add(sonde__observe_map *map, uint32_t id, void *user,
                                 sonde_diag *diag)
{
    sonde_tensor_info info = *sonde_catalogue_info(map->from, id);
    const uint32_t known = sonde__catalogue_named(map->to, info.name);

    if (known != SONDE_NO_TENSOR) {
        map->ids[id] = known;
        return SONDE_OK;
    }
    if (info.same_as == id) {
        info.same_as = SONDE_NO_TENSOR;
    } else {
        SONDE__TRY(sonde__observe_map_add(map, info.same_as, user, diag));
        const uint32_t tensor = map->ids[info.same_as];
        const sonde_tensor_info *named = sonde_catalogue_info(map->to, tensor);

        info.same_as = tensor;
        info.dtype = named->dtype;
        info.rank = named->rank;
        memcpy(info.shape, named->shape, sizeof info.shape);
    }
    return map->declare(user, &info, id, &map->ids[id], diag);
}
