/*
 * plot_output.c - see plot_output.h.
 */
#include "plot/plot_output.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/plot.h>

#include <string.h>
#include <strings.h>

/* --- kinds -------------------------------------------------------------------------- */

sonde_err sonde__plot_kind_of(const char *path, sonde__plot_kind *kind, sonde_diag *diag)
{
    const char *const slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *const name = slash != NULL ? slash + 1 : path;
    const char *const dot = name != NULL ? strrchr(name, '.') : NULL;

    if (name == NULL || name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, path, "a name that ends in .png or .svg",
                           "no file name for the picture");
    }
    if (dot != NULL && strcasecmp(dot, ".png") == 0) {
        *kind = SONDE__PLOT_PNG;
        return SONDE_OK;
    }
    if (dot != NULL && strcasecmp(dot, ".svg") == 0) {
        *kind = SONDE__PLOT_SVG;
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINVAL, path, ".png or .svg", "%s%s%s",
                       dot != NULL ? "pictures of the kind '" : "the name has no ending",
                       dot != NULL ? dot : "", dot != NULL ? "' cannot be written" : "");
}

sonde_err sonde_plot_check_path(const char *path, sonde_diag *diag)
{
    sonde__plot_kind kind = SONDE__PLOT_PNG;

    return sonde__plot_kind_of(path, &kind, diag);
}

/* --- bytes -------------------------------------------------------------------------- */

void sonde__plot_bytes_fini(sonde__plot_bytes *bytes)
{
    sonde__free(bytes->data);
    *bytes = (sonde__plot_bytes){0};
}

void sonde__plot_bytes_add(sonde__plot_bytes *bytes, const void *data, size_t size)
{
    if (size == 0 || bytes->full) {
        return;
    }
    if (size > SIZE_MAX - bytes->size ||
        !sonde__reserve(&bytes->data, &bytes->capacity, bytes->size + size, 1)) {
        bytes->full = true;
        return;
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void sonde__plot_bytes_add_text(sonde__plot_bytes *bytes, const char *text)
{
    sonde__plot_bytes_add(bytes, text, strlen(text));
}
