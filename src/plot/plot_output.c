/*
 * plot_output.c - see plot_output.h.
 */
#include "plot/plot_output.h"
#include "base/fail.h"

#include <sonde/plot.h>

#include <string.h>
#include <strings.h>

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
