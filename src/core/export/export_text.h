/*
 * export_text.h - CSV and JSON lines. Internal.
 */
#ifndef SONDE_EXPORT_EXPORT_TEXT_H
#define SONDE_EXPORT_EXPORT_TEXT_H

#include "export/export_walk.h"

/* Writes a row for each step of each tensor. */
sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag);
/* Writes raw values (options.values). */
sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag);

#endif
