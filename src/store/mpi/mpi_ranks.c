/*
 * mpi_ranks.c - the ranks of a training over MPI (MPI-3's collective calls that do not block).
 *
 * A call is begun and then asked for until it is done, so that a rank that waits for
 * another one can give up: after an interruption, or after LIMIT seconds.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "nn/ranks/ranks.h"

#include <mpi.h>
#include <sched.h>
#include <stdint.h>

static const double LIMIT = 600.0; /* seconds that a rank waits for another one */
static const double GRACE = 1.0;   /* after an interruption */

enum { SPINS = 200, MOST_BYTES = 1 << 30 };

static sonde_err fail_mpi(int code, const char *call, sonde_diag *diag)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    (void)MPI_Error_string(code, text, &length);
    return sonde__fail(diag, SONDE_EIO, "mpirun", "all ranks", "%s: %s", call, text);
}

/* --- waiting ------------------------------------------------------------------------ */

static sonde_err fail_silent(double waited, bool interrupted, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EIO, "mpirun", "an answer of every rank",
                       "a rank has ended or does not answer for %.0f s%s", waited,
                       interrupted ? ", and this one is interrupted" : "");
}

/* Until the call is done. The request of a call that was given up stays: the process
 * ends. */
static sonde_err await(MPI_Request *request, int code, const char *call,
                       const sonde__ranks_wait *wait, sonde_diag *diag)
{
    double began = 0.0, asked = 0.0;
    int done = 0;

    for (int64_t spin = 0; code == MPI_SUCCESS; spin++) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || done) {
            break;
        }
        if (spin < SPINS) {
            continue;
        }
        (void)sched_yield();
        if (spin % SPINS != 0) {
            continue;
        }
        began = began == 0.0 ? sonde__now() : began;
        if (asked == 0.0 && wait->interrupted != NULL && wait->interrupted(wait->user)) {
            asked = sonde__now();
        }
        if (asked > 0.0 ? sonde__now() - asked > GRACE : sonde__now() - began > LIMIT) {
            return fail_silent(sonde__now() - began, asked > 0.0, diag);
        }
    }
    return code == MPI_SUCCESS ? SONDE_OK : fail_mpi(code, call, diag);
}

/* --- the table ---------------------------------------------------------------------- */

static sonde_err join(int *rank, int *count, sonde_diag *diag)
{
    int begun = 0, given = 0;
    int code = MPI_Initialized(&begun);

    if (code == MPI_SUCCESS && begun) {
        return sonde__fail(diag, SONDE_ESTATE, "MPI", "a process that has not begun it",
                           "it is begun");
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_size(MPI_COMM_WORLD, count);
    }
    if (code != MPI_SUCCESS) {
        return fail_mpi(code, "MPI_Init_thread", diag);
    }
    return given >= MPI_THREAD_SERIALIZED
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EUNSUPPORTED, "MPI", "MPI_THREAD_SERIALIZED",
                             "level %d of threads", given);
}

static void leave(bool well)
{
    if (well) {
        (void)MPI_Finalize();
    }
}

/* The analyzer does not see that await waits. */
/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
static sonde_err gather(const void *own, void *all, size_t bytes,
                        const sonde__ranks_wait *wait, sonde_diag *diag)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                    MPI_COMM_WORLD, &request);

    return await(&request, code, "MPI_Iallgather", wait, diag);
}

static sonde_err exchange(const float *slices, float *parts, int each,
                          const sonde__ranks_wait *wait, sonde_diag *diag)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Ialltoall(slices, each, MPI_FLOAT, parts, each, MPI_FLOAT,
                                   MPI_COMM_WORLD, &request);

    return await(&request, code, "MPI_Ialltoall", wait, diag);
}

static sonde_err broadcast(void *data, size_t bytes, const sonde__ranks_wait *wait,
                           sonde_diag *diag)
{
    unsigned char *at = data;
    sonde_err err = SONDE_OK;

    while (bytes > 0 && err == SONDE_OK) {
        MPI_Request request = MPI_REQUEST_NULL;
        const size_t piece = bytes < MOST_BYTES ? bytes : MOST_BYTES;
        const int code =
            MPI_Ibcast(at, (int)piece, MPI_BYTE, 0, MPI_COMM_WORLD, &request);

        err = await(&request, code, "MPI_Ibcast", wait, diag);
        at += piece;
        bytes -= piece;
    }
    return err;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

extern const sonde__ranks_ops sonde__ranks_mpi;
SONDE_API const sonde__ranks_ops sonde__ranks_mpi = {.join = join,
                                                     .leave = leave,
                                                     .gather = gather,
                                                     .exchange = exchange,
                                                     .broadcast = broadcast};
