/*
 * report.h - what rules found in a run, as one page for people.
 *
 * The page is one HTML file that needs nothing else: style and curves are in it, there is no
 * script, and nothing is loaded from anywhere. It is light or dark as the reader's machine is,
 * narrow or wide, and can be printed. Top down:
 *
 *     the verdict; when what began
 *     the loss
 *     a card for each rule that found something: what, where, when, how bad, what to try
 *     the tensors, a line each
 *     which rules judged, and what the others lacked
 *     the run
 *
 * The same run and the same findings give the same bytes. All texts of the run are escaped:
 * a tensor may be called what it likes.
 */
#ifndef SONDE_REPORT_H
#define SONDE_REPORT_H

#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_report_options {
    const char *title; /* NULL: the model's name, else the run's folder */
    size_t places;     /* most findings told of each rule; 0: 8. All are counted */
    size_t tensors;    /* most lines of the table of tensors; 0: 200. Those with findings
                          come first */
} sonde_report_options;

/*
 * Writes the page of a trial that the rules have judged. What was at path is replaced, once the
 * page is whole. options may be NULL. Curves are of vital signs, reduced to the width of the
 * page: the page of a long run is as large as that of a short one, some 100 KB. SONDE_EIO,
 * SONDE_ENOTFOUND: path cannot be written; SONDE_ENOMEM. Cost: reads the vital signs of the
 * tensors that are shown, once or twice.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_report_write(const char *path, sonde_trial *trial,
                                                     sonde_rules *rules,
                                                     const sonde_report_options *options,
                                                     sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
