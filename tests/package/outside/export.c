/* Exports a run as CSV. */
#include <sonde/sonde.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    sonde_export_options options = sonde_export_options_default();
    sonde_export_report report;
    sonde_trial *trial = NULL;
    sonde_diag diag;

    if (argc < 3 || sonde_trial_open(argv[1], NULL, &trial, &diag) != SONDE_OK) {
        return 1;
    }
    options.mode = SONDE_MODE_TRAIN;
    if (sonde_trial_export(trial, SONDE_EXPORT_CSV, argv[2], &options, &report, &diag) !=
        SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fprintf(stderr, "error: %s\n", sonde_diag_line(&diag, line, sizeof line));
        return 1;
    }
    sonde_trial_close(trial);
    return 0;
}
