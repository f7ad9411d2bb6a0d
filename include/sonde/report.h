/*
 * report.h - the findings of rules in a run, as one page.
 *
 * The page is one self-contained HTML file: style and curves are in it, it has no script
 * and loads nothing. It follows the reader's light or dark theme, fits wide and narrow
 * screens and can be printed. From top to bottom:
 *
 *     the verdict, and when each finding began
 *     the loss
 *     a card for each rule with findings: what, where, when, how bad, what to try
 *     the tensors, a line each
 *     the rules that judged, and the data that the others lacked
 *     the run
 *
 * The same run and the same findings give the same bytes. All texts of the run are
 * escaped, so tensors may have any name.
 *
 * Threads: those of the trial and the rules.
 */
#ifndef SONDE_REPORT_H
#define SONDE_REPORT_H

#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Writes the page of a trial that the rules have judged. A file at path is replaced once
 * the page is complete. It shows 8 findings of each rule and 200 tensors, and counts the
 * others. Curves show vital signs, reduced to the width of the page: the page of a long run
 * is as small as that of a short one, about 100 KB. SONDE_EIO, SONDE_ENOTFOUND: path cannot be written; SONDE_ENOMEM. Cost: reads the
 * vital signs of the shown tensors once or twice.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_report_write(const char *path, sonde_trial *trial,
                                                     sonde_rules *rules,
                                                     sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
