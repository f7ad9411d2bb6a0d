/*
 * bench_hostile.c - recording on disks that fail and in programs that die.
 *
 *     bench_hostile [--calls 500] [--recoveries 300] [--kills 200] [--faults 50]
 *                   [--exits 50] [--corruptions 1000] [--seed 7] [--dir FOLDER]
 *
 * Each case is a child that records a small run. Rows:
 *
 *     hostile_calls           calls on files of the run that failed, one in each run (EIO);
 *                             evenly spread if there are more than --calls
 *     hostile_calls_lost      records lost by all of these runs
 *     hostile_recoveries      killed runs that a resumed recorder or a reader opened, in turns,
 *                             on a disk that failed: at one call, or from one on (EIO,
 *                             ENOSPC, EROFS, EFBIG)
 *     hostile_recoveries_refused
 *                             of these openings, those that failed
 *     hostile_recoveries_lost steps that a later opening does not show
 *     hostile_kills, hostile_faults, hostile_exits
 *                             children that were killed, died of SIGSEGV, exited without close
 *                             (of every second run a reader is killed while it recovers)
 *     hostile_..._lost        steps that had ended and that a trial does not show
 *     hostile_corruptions     files of a run damaged at random places, one in each case: a
 *                             bit, zeros, a cut, bytes removed, repeated or overwritten by
 *                             others of the file, or all of the file of another run
 *     hostile_crashes, hostile_hangs
 *                             of a verification and a reading of the whole run
 *     hostile_silent          damage that verify does not report
 */
#include "support.h"

#include "base/macros.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/recorder.h>
#include <sonde/sketch.h>
#include <sonde/trial.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 3, FLOATS = 2000, STEPS = 56, PATH = 1024, SECONDS = 30 };
static const uint64_t RECORDS = 2 * TENSORS + 1; /* a step: values, rows, a sketch */

static const char *folder = "/tmp";
static uint64_t base_seed = 7;
static int has_missed;
static const char *self;

/* A row whose value must be 0. */
static void row_of_none(const char *name, uint64_t value, const char *unit)
{
    has_missed |= value > 0;
    bench_row(name, (double)value, unit, "<=0");
}

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(2);
    }
}

static uint64_t chance(uint64_t number, uint64_t which, uint64_t most)
{
    return sonde__below(base_seed + 4, which, number, most);
}

static int drop(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static const char *run_path(char path[PATH])
{
    (void)snprintf(path, PATH, "%s/hostile-%d", folder, (int)getpid());
    (void)nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
    return path;
}

/* --- the child ---------------------------------------------------------------------- */

static sonde_catalogue *declare(void)
{
    sonde_catalogue *catalogue = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_catalogue_create(&catalogue, &diag), &diag);
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        const sonde_tensor_info info = {.name = name,
                                        .dtype = SONDE_F32,
                                        .rank = 1,
                                        .shape = {FLOATS},
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "t%d", i);
        bench_check(sonde_catalogue_declare(catalogue, &info, &id, &diag), &diag);
    }
    return catalogue;
}

static void record_step(sonde_recorder *recorder, int64_t step)
{
    static float x[FLOATS];
    static sonde_sketch sketch;
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = {
        .mode = SONDE_MODE_TRAIN, .global_step = step, .mode_step = step};
    sonde_vitals vitals;

    for (int i = 0; i < FLOATS; i++) {
        x[i] = (float)(step + i);
    }
    sonde_vitals_of(&view, &vitals);
    sonde_sketch_init(&sketch);
    sketch.positive[step % SONDE_SKETCH_BINS] = 1;
    for (uint32_t id = 0; id < TENSORS; id++) {
        sonde__recorder_put(recorder, id, &at, &view);
        sonde__recorder_put_vitals(recorder, id, &at, &vitals);
    }
    sonde__recorder_put_sketch(recorder, 0, &at, &sketch);
    sonde__recorder_end_step(recorder, &at);
}

static sonde_recorder *start(const char *path, const sonde_catalogue *catalogue)
{
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    bench_check(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                     .ring_bytes = 1024 * 1024,
                                                     .segment_bytes = 64 * 1024,
                                                     .when_full = SONDE_WHEN_FULL_WAIT),
                                       catalogue, &recorder, &diag),
                &diag);
    return recorder;
}

/* bench_hostile --child RUN: a run of STEPS steps, each in the files before the next. */
static int run_child(const char *path)
{
    sonde_catalogue *const catalogue = declare();
    sonde_recorder *const recorder = start(path, catalogue);
    sonde_diag diag = {0};

    for (int64_t step = 0; step < STEPS; step++) {
        record_step(recorder, step);
        must(sonde__recorder_drain(recorder, SECONDS), "drain");
    }
    bench_check(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    sonde_catalogue_destroy(catalogue);
    return 0;
}

/* --- one failing call --------------------------------------------------------------- */

/* A disk that fails: at the n-th call (0: never), and ever after; error 0: EIO. With
 * reads, calls that read count too. */
typedef struct bad_disk {
    long n;
    int error;
    bool ever, reads;
} bad_disk;

static void set_disk(const char *path, const bad_disk *disk)
{
    char number[32];

    (void)setenv("HOSTILE_RUN", path, 1);
    (void)snprintf(number, sizeof number, "%ld", disk->n);
    (void)setenv("HOSTILE_FAIL", number, 1);
    if (disk->error != 0) {
        (void)snprintf(number, sizeof number, "%d", disk->error);
        (void)setenv("HOSTILE_ERRNO", number, 1);
    }
    if (disk->ever) {
        (void)setenv("HOSTILE_EVER", "1", 1);
    }
    if (disk->reads) {
        (void)setenv("HOSTILE_READS", "1", 1);
    }
}

/* Runs this program on such a disk with what and path as its arguments. Returns the calls
 * that it made, and its status in *status, which may be NULL. */
static long run_on(const bad_disk *disk, const char *what, const char *path, int *status)
{
    char count[PATH + 8], shim[PATH];
    char *slash = NULL;
    long calls = 0;
    int ended = 0;
    FILE *file = NULL;
    pid_t child = 0;

    (void)snprintf(count, sizeof count, "%s.count", path);
    (void)snprintf(shim, sizeof shim, "%s", self);
    slash = strrchr(shim, '/');
    (void)snprintf(slash, sizeof shim - (size_t)(slash - shim),
                   "/../lib/libbench_hostile_shim.so");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        (void)setenv("LD_PRELOAD", shim, 1);
        set_disk(path, disk);
        (void)setenv("HOSTILE_COUNT", count, 1);
        (void)setenv("SONDE_LOG_LEVEL", "off", 1);
        (void)execl(self, self, what, path, (char *)NULL);
        _exit(127);
    }
    must(waitpid(child, &ended, 0) == child, "waitpid");
    if (status != NULL) {
        *status = ended;
    }
    file = fopen(count, "r");
    if (file != NULL) {
        if (fscanf(file, "%ld", &calls) != 1) {
            calls = 0;
        }
        (void)fclose(file);
    }
    (void)unlink(count);
    return calls;
}

/* Records a run with the n-th call failing. Returns the calls. */
static long run_failing(const char *path, long n)
{
    return run_on(&(bad_disk){.n = n}, "--child", path, NULL);
}

/* Records that verify does not find in a run of so many steps. */
static uint64_t missing(const char *path, uint64_t steps)
{
    sonde_verify_report report = {0};
    uint64_t found = 0;

    if (sonde_trial_verify(path, &report, NULL, NULL, NULL) == SONDE_OK) {
        found = report.records + report.rows + report.sketches;
    }
    return report.damaged > 0 || report.lost > 0 ? steps * RECORDS
           : found < steps * RECORDS             ? steps * RECORDS - found
                                                 : 0;
}

static void bench_calls(long most)
{
    char path[PATH];
    const long calls = most > 0 ? run_failing(run_path(path), 0) : 0;
    const long stride = most > 0 && calls > most ? calls / most : 1;
    uint64_t lost = 0;
    long done = 0;

    for (long n = 1; n <= calls; n += stride, done++) {
        uint64_t lost_here = 0;

        (void)run_failing(run_path(path), n);
        lost_here = missing(path, STEPS);
        if (lost_here > 0) {
            (void)fprintf(stderr, "call %ld: %llu records\n", n,
                          (unsigned long long)lost_here);
        }
        lost += lost_here;
    }
    bench_row("hostile_calls", (double)done, "runs", "");
    row_of_none("hostile_calls_lost", lost, "records");
}

/* --- programs that die -------------------------------------------------------------- */

typedef enum death { DEATH_KILL, DEATH_FAULT, DEATH_EXIT } death;

/* Never returns. *ended: steps whose end has returned. */
static void record_until_death(const char *path, death how, int64_t last,
                               _Atomic int64_t *ended)
{
    sonde_recorder *const recorder = start(path, declare());

    (void)signal(SIGSEGV, SIG_DFL);
    for (int64_t step = 0;; step++) {
        record_step(recorder, step);
        *ended = step + 1;
        if (step == last && how == DEATH_FAULT) {
            (void)raise(SIGSEGV);
        }
        if (step == last && how == DEATH_EXIT) {
            exit(0);
        }
    }
}

/* Ended steps of the run that a trial does not show. */
static uint64_t missing_steps(const char *path, int64_t ended)
{
    sonde_trial *trial = NULL;
    uint64_t lost = 0;

    if (sonde_trial_open(path, NULL, &trial, NULL) != SONDE_OK) {
        return (uint64_t)ended;
    }
    for (int64_t step = 0; step < ended; step++) {
        const sonde_trial_at at = {.mode = SONDE_MODE_TRAIN, .step = step, .worker = -1};
        bool good = sonde_trial_has_passed_step(trial, step, SONDE_MODE_TRAIN) ==
                    SONDE_STEP_AVAILABLE;

        for (uint32_t id = 0; id < TENSORS && good; id++) {
            sonde_view view;

            good = sonde_trial_value(trial, id, &at, &view, NULL) == SONDE_OK &&
                   ((const float *)view.data)[1] == (float)(step + 1) &&
                   (sonde_trial_has(trial, id, &at) & SONDE_HOW_VITALS) != 0;
        }
        lost += !good;
    }
    sonde_trial_close(trial);
    return lost;
}

/* --- a recovery on a disk that fails ------------------------------------------------- */

/* bench_hostile --killed RUN: a run of STEPS steps, the first half in files. */
static int run_killed(const char *path)
{
    sonde_recorder *const recorder = start(path, declare());

    for (int64_t step = 0; step < STEPS; step++) {
        record_step(recorder, step);
        if (step == STEPS / 2) {
            must(sonde__recorder_drain(recorder, SECONDS), "drain");
        }
    }
    return raise(SIGKILL);
}

/* bench_hostile --resumed RUN: resumes and closes a run. */
static int run_resumed(const char *path)
{
    sonde_catalogue *const catalogue = declare();
    sonde_recorder *recorder = NULL;
    sonde_err err = sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                         .resume = SONDE_RESUME_ANY,
                                                         .wait_seconds = 0.1),
                                           catalogue, &recorder, NULL);

    if (err == SONDE_OK) {
        err = sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL);
    }
    sonde_catalogue_destroy(catalogue);
    return err != SONDE_OK;
}

/* bench_hostile --read RUN */
static int run_read(const char *path)
{
    return missing_steps(path, STEPS) > 0;
}

static void bench_recoveries(long most)
{
    static const int errors[] = {EIO, ENOSPC, EROFS, EFBIG};
    char path[PATH], killed[PATH + 8], command[4 * PATH];
    uint64_t lost = 0, refused = 0, crashed = 0;
    long done = 0;

    (void)snprintf(killed, sizeof killed, "%s.killed", run_path(path));
    (void)nftw(killed, drop, 16, FTW_DEPTH | FTW_PHYS);
    if (most > 0) {
        (void)run_on(&(bad_disk){0}, "--killed", killed, NULL);
    }
    for (long n = 1; done < most; n++) {
        const char *const what = done % 2 == 0 ? "--resumed" : "--read";
        const bad_disk bad = {.n = n / 2 + 1,
                              .error = errors[chance((uint64_t)done, 6, 4)],
                              .ever = chance((uint64_t)done, 7, 2) == 0,
                              .reads = true};
        uint64_t lost_here = 0;
        int status = 0;

        (void)snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", path,
                       killed, path);
        must(system(command) == 0, command);
        if (run_on(&bad, what, path, &status) < bad.n) { /* it made fewer calls */
            if (n < 4) {
                break;
            }
            n = 0;
        }
        done++;
        crashed += WIFSIGNALED(status);
        refused += WIFEXITED(status) && WEXITSTATUS(status) != 0;
        lost_here = missing_steps(path, STEPS);
        if (lost_here > 0 || WIFSIGNALED(status)) {
            (void)fprintf(stderr, "recovery %ld (%s, call %ld, errno %d%s): %llu steps\n",
                          done, what, bad.n, bad.error, bad.ever ? " for ever" : "",
                          (unsigned long long)lost_here);
        }
        lost += lost_here;
    }
    (void)nftw(killed, drop, 16, FTW_DEPTH | FTW_PHYS);
    bench_row("hostile_recoveries", (double)done, "runs", "");
    bench_row("hostile_recoveries_refused", (double)refused, "runs", "");
    row_of_none("hostile_recoveries_lost", lost + crashed, "steps");
}

/* Of every second run the first reader is killed while it recovers the ring, and two
 * others begin at once. */
static void disturb_recovery(const char *path, uint64_t number)
{
    const struct timespec wait = {
        .tv_nsec = (long)sonde__below(base_seed + 1, 1, number, 20 * 1000 * 1000)};
    pid_t readers[3];

    if (number % 2 == 0) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        readers[i] = fork();
        must(readers[i] >= 0, "fork");
        if (readers[i] == 0) {
            _exit(missing_steps(path, 1) > 0);
        }
        if (i == 0) {
            (void)nanosleep(&wait, NULL);
            (void)kill(readers[i], SIGKILL);
        }
    }
    for (int i = 0; i < 3; i++) {
        (void)waitpid(readers[i], NULL, 0);
    }
}

static void bench_deaths(const char *name, death how, long count)
{
    _Atomic int64_t *const ended = mmap(NULL, sizeof *ended, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char path[PATH], row[64];
    uint64_t lost = 0;

    must(ended != MAP_FAILED, "mmap");
    for (long i = 0; i < count; i++) {
        const uint64_t lot = sonde__below(base_seed, (uint64_t)how, (uint64_t)i, 1 << 20);
        const struct timespec wait = {.tv_nsec = (long)(lot % 50000000)};
        uint64_t lost_here = 0;
        int status = 0;
        pid_t child = 0;

        (void)run_path(path);
        *ended = 0;
        child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            record_until_death(path, how, (int64_t)(lot % 300), ended);
        }
        if (how == DEATH_KILL) {
            while (*ended == 0 && waitpid(child, &status, WNOHANG) == 0) {
            }
            (void)nanosleep(&wait, NULL);
            (void)kill(child, SIGKILL);
        }
        (void)waitpid(child, &status, 0);
        disturb_recovery(path, (uint64_t)i);
        lost_here = missing_steps(path, *ended);
        if (lost_here > 0) {
            (void)fprintf(stderr, "%s %ld: %llu of %lld steps\n", name, i,
                          (unsigned long long)lost_here, (long long)*ended);
        }
        lost += lost_here;
    }
    (void)munmap((void *)(uintptr_t)ended, sizeof *ended);
    (void)snprintf(row, sizeof row, "hostile_%s", name);
    bench_row(row, (double)count, "runs", "");
    (void)snprintf(row, sizeof row, "hostile_%s_lost", name);
    row_of_none(row, lost, "steps");
}

/* --- corruption --------------------------------------------------------------------- */

typedef struct files {
    char names[256][64];
    size_t count;
} files;

static files seen;

static int note(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    if (kind == FTW_F && about->st_size > 0 && seen.count < SONDE_COUNT_OF(seen.names)) {
        const char *name = path + strlen(path);

        for (int slashes = at->level; slashes > 0; slashes -= *name == '/') {
            name--;
        }
        (void)snprintf(seen.names[seen.count++], sizeof seen.names[0], "%.60s", name + 1);
    }
    return 0;
}

enum { MOST = 1 << 20 };
typedef struct bytes {
    unsigned char data[2 * MOST];
    size_t size;
} bytes;

static void load(const char *path, bytes *to)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, to->data, MOST);

    must(fd >= 0 && n > 0 && n < MOST, path);
    to->size = (size_t)n;
    (void)close(fd);
}

/* Damages the bytes of a file; other: those of another run, or empty. */
static void damage_bytes(bytes *file, const bytes *other, uint64_t number)
{
    const size_t at = (size_t)chance(number, 1, file->size);
    const size_t size = SONDE_MIN(file->size - at, 1 + (size_t)chance(number, 2, 200));
    const size_t from = (size_t)chance(number, 4, file->size - size + 1);

    switch (chance(number, 5, 7)) {
    case 0:
        file->data[at] ^= (unsigned char)(1U << chance(number, 3, 8));
        break;
    case 1:
        memset(file->data + at, 0, size);
        break;
    case 2:
        file->size = at;
        break;
    case 3: /* removed */
        memmove(file->data + at, file->data + at + size, file->size - at - size);
        file->size -= size;
        break;
    case 4: /* repeated */
        memmove(file->data + at + size, file->data + at, file->size - at);
        file->size += size;
        break;
    case 5: /* over others */
        memmove(file->data + at, file->data + from, size);
        break;
    default:
        if (other->size > 0) {
            memcpy(file->data, other->data, other->size);
            file->size = other->size;
        }
        break;
    }
}

/* True if the file is another one now. */
static bool damage(const char *path, const char *other_path, uint64_t number)
{
    static bytes file, before, other;
    int fd = -1;

    load(path, &file);
    before = file;
    other.size = 0;
    if (access(other_path, F_OK) == 0) {
        load(other_path, &other);
    }
    damage_bytes(&file, &other, number);
    if (file.size == before.size && memcmp(file.data, before.data, file.size) == 0) {
        return false;
    }
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    must(fd >= 0 && write(fd, file.data, file.size) == (ssize_t)file.size, path);
    (void)close(fd);
    return true;
}

/* In a child: 0 damage was reported, 1 it was not, 2 a signal, 3 no end. */
static int examine(const char *path)
{
    int status = 0;
    const pid_t child = fork();

    must(child >= 0, "fork");
    if (child == 0) {
        sonde_verify_report report = {0};
        const sonde_err err =
            (alarm(SECONDS), sonde_trial_verify(path, &report, NULL, NULL, NULL));

        (void)signal(SIGSEGV, SIG_DFL);
        (void)missing_steps(path, STEPS);
        _exit(err != SONDE_OK || report.damaged > 0 || report.torn > 0 || report.lost > 0
                  ? 0
                  : 1);
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGALRM ? 3 : 2;
}

static void bench_corruptions(long count)
{
    char path[PATH], copy[PATH + 8], another[PATH + 8], file[PATH + 80];
    char other[PATH + 80], command[4 * PATH];
    uint64_t results[4] = {0}, changed = 0;

    (void)run_failing(run_path(path), 0);
    (void)snprintf(another, sizeof another, "%s.another", path);
    (void)nftw(another, drop, 16, FTW_DEPTH | FTW_PHYS);
    must(rename(path, another) == 0, path);
    (void)run_failing(run_path(path), 0);
    seen.count = 0;
    (void)nftw(path, note, 16, FTW_PHYS);
    (void)snprintf(copy, sizeof copy, "%s.copy", path);
    for (long i = 0; i < count; i++) {
        const char *const name = seen.names[chance((uint64_t)i, 0, seen.count)];
        int result = 0;

        (void)snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", copy,
                       path, copy);
        must(system(command) == 0, command);
        (void)snprintf(file, sizeof file, "%s/%s", copy, name);
        (void)snprintf(other, sizeof other, "%s/%s", another, name);
        if (!damage(file, other, (uint64_t)i)) {
            continue;
        }
        changed++;
        result = examine(copy);
        results[result & 3]++;
        if (result > 0) {
            (void)fprintf(stderr, "corruption %ld of %s: %d\n", i, name, result);
        }
    }
    (void)nftw(copy, drop, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(another, drop, 16, FTW_DEPTH | FTW_PHYS);
    bench_row("hostile_corruptions", (double)changed, "files", "");
    row_of_none("hostile_crashes", results[2], "files");
    row_of_none("hostile_hangs", results[3], "files");
    row_of_none("hostile_silent", results[1], "files");
}

int main(int argc, char **argv)
{
    static char own[PATH];
    char path[PATH];
    long counts[] = {500, 200, 50, 50, 1000, 300};
    static const char *const names[] = {"--calls", "--kills",       "--faults",
                                        "--exits", "--corruptions", "--recoveries"};
    static const struct {
        const char *name;
        int (*run)(const char *path);
    } children[] = {{"--child", run_child},
                    {"--killed", run_killed},
                    {"--resumed", run_resumed},
                    {"--read", run_read}};
    const ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);

    must(n > 0, "/proc/self/exe");
    self = own;
    for (size_t i = 0; argc == 3 && i < SONDE_COUNT_OF(children); i++) {
        if (strcmp(argv[1], children[i].name) == 0) {
            return children[i].run(argv[2]);
        }
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < SONDE_COUNT_OF(names); k++) {
            counts[k] = strcmp(argv[i], names[k]) == 0 ? atol(argv[i + 1]) : counts[k];
        }
        folder = strcmp(argv[i], "--dir") == 0 ? argv[i + 1] : folder;
        base_seed =
            strcmp(argv[i], "--seed") == 0 ? strtoull(argv[i + 1], NULL, 10) : base_seed;
    }
    bench_header();
    bench_calls(counts[0]);
    bench_recoveries(counts[5]);
    bench_deaths("kills", DEATH_KILL, counts[1]);
    bench_deaths("faults", DEATH_FAULT, counts[2]);
    bench_deaths("exits", DEATH_EXIT, counts[3]);
    bench_corruptions(counts[4]);
    (void)run_path(path);
    return has_missed;
}
