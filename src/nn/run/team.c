/*
 * team.c - see team.h. A thread waits for a word to change: for `run` between jobs, for
 * that of a meeting, for a turn. It spins, then sleeps in the kernel (futex(2)) until
 * another thread wakes it. The pair of `sleeping` and the word is ordered by seq_cst:
 * either the waker sees the sleeper or the sleeper sees the new word.
 */
#include "nn/run/team.h"
#include "base/cpu.h"
#include "base/memory.h"

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About 20 us of pauses: what a sleep and a wake cost. */
enum { SPINS_BEFORE_SLEEP = 400 };

typedef struct member {
    sonde__session_team *team;
    pthread_t thread;
    int number;
} member;

struct sonde__session_team {
    int threads, started;
    member *members; /* entry 0 is the caller, without thread */
    void (*job)(void *user, int member);
    void *user;
    atomic_bool leaving;
    sonde__session_meeting all;
    sonde__session_word run; /* counts runs */
};

/* === words ========================================================================== */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void init_word(sonde__session_word *word, int spins)
{
    atomic_init(&word->value, 0);
    atomic_init(&word->sleeping, 0);
    word->spins = spins;
}

/* Returns when the word is no longer old. What the writer wrote before is seen. */
static void await_change(sonde__session_word *word, unsigned old)
{
    for (int spins = 0; spins < word->spins; spins++) {
        if (atomic_load_explicit(&word->value, memory_order_acquire) != old) {
            return;
        }
        relax();
    }
    (void)atomic_fetch_add(&word->sleeping, 1);
    while (atomic_load(&word->value) == old) {
        /* Returns at once if the word has changed meanwhile. */
        (void)syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    }
    (void)atomic_fetch_sub(&word->sleeping, 1);
}

static void change(sonde__session_word *word)
{
    (void)atomic_fetch_add(&word->value, 1);
    if (atomic_load(&word->sleeping) > 0) {
        (void)syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL,
                      0);
    }
}

/* Threads spin only while each may have a processor. */
static int spins_of(int threads)
{
    return threads <= sonde__cpu_count() ? SPINS_BEFORE_SLEEP : 0;
}

/* === meetings and turns ============================================================= */

void sonde__session_meeting_init(sonde__session_meeting *meeting, int threads, int all)
{
    meeting->threads = threads;
    atomic_init(&meeting->arrived, 0);
    init_word(&meeting->generation, spins_of(all));
}

void sonde__session_meet(sonde__session_meeting *meeting)
{
    const unsigned generation =
        atomic_load_explicit(&meeting->generation.value, memory_order_relaxed);
    const int before =
        atomic_fetch_add_explicit(&meeting->arrived, 1, memory_order_acq_rel);

    if (before + 1 < meeting->threads) {
        await_change(&meeting->generation, generation);
        return;
    }
    atomic_store_explicit(&meeting->arrived, 0, memory_order_relaxed);
    change(&meeting->generation);
}

void sonde__session_turns_init(sonde__session_word *turns, int all)
{
    init_word(turns, spins_of(all));
}

unsigned sonde__session_turn_now(const sonde__session_word *turns)
{
    return atomic_load_explicit(&turns->value, memory_order_acquire);
}

void sonde__session_turn_await(sonde__session_word *turns, unsigned ticket)
{
    for (;;) {
        const unsigned now = atomic_load_explicit(&turns->value, memory_order_acquire);

        if (now == ticket) {
            return;
        }
        await_change(turns, now);
    }
}

void sonde__session_count_await(sonde__session_word *count, unsigned least)
{
    for (;;) {
        const unsigned now = atomic_load_explicit(&count->value, memory_order_acquire);

        if ((int)(now - least) >= 0) {
            return;
        }
        await_change(count, now);
    }
}

void sonde__session_turn_pass(sonde__session_word *turns)
{
    change(turns);
}

/* === the team ======================================================================= */

void sonde__session_team_barrier(sonde__session_team *team)
{
    sonde__session_meet(&team->all);
}

sonde__session_meeting *sonde__session_team_meeting(sonde__session_team *team)
{
    return &team->all;
}

static void *member_main(void *argument)
{
    const member *self = argument;
    sonde__session_team *team = self->team;

    for (unsigned done = 0;; done++) {
        await_change(&team->run, done);
        if (atomic_load_explicit(&team->leaving, memory_order_relaxed)) {
            return NULL;
        }
        team->job(team->user, self->number);
        sonde__session_team_barrier(team);
    }
}

sonde_err sonde__session_team_create(int threads, sonde__session_team **out)
{
    sonde__session_team *team = sonde__malloc_aligned(64, sizeof *team);
    sonde_err err = SONDE_ENOMEM;

    if (team == NULL) {
        return SONDE_ENOMEM;
    }
    team->threads = threads;
    team->started = 1;
    team->job = NULL;
    team->user = NULL;
    atomic_init(&team->leaving, false);
    sonde__session_meeting_init(&team->all, threads, threads);
    init_word(&team->run, spins_of(threads));
    team->members = sonde__calloc((size_t)threads, sizeof *team->members);
    if (team->members == NULL) {
        goto error;
    }
    for (int i = 1; i < threads; i++) {
        team->members[i] = (member){.team = team, .number = i};
        if (pthread_create(&team->members[i].thread, NULL, member_main,
                           &team->members[i]) != 0) {
            err = SONDE_EIO;
            goto error;
        }
        team->started++;
    }
    *out = team;
    return SONDE_OK;

error:
    sonde__session_team_destroy(team);
    return err;
}

void sonde__session_team_destroy(sonde__session_team *team)
{
    if (team == NULL) {
        return;
    }
    atomic_store_explicit(&team->leaving, true, memory_order_relaxed);
    change(&team->run);
    for (int i = 1; i < team->started; i++) {
        (void)pthread_join(team->members[i].thread, NULL);
    }
    sonde__free(team->members);
    sonde__free(team);
}

void sonde__session_team_run(sonde__session_team *team,
                             void (*job)(void *user, int member), void *user)
{
    team->job = job;
    team->user = user;
    change(&team->run);
    job(user, 0);
    sonde__session_team_barrier(team);
}

/* === pace =========================================================================== */

enum { FIRST_STEPS = 16, WARM_STEPS = 2, LEAST_STEPS = 2, WINDOW_STEPS = 16 };
/* A trial spans several time slices of the scheduler, else it sees none or one. */
static const double trial_seconds = 0.02, first_stretch = 0.2, longest_stretch = 2.0;
/* A stretch lasts at least this many times what its last trial lost. */
static const double cost_share = 10.0;
/* A window this many times slower than expected ends a stretch, and a trial this many
 * times slower than the other kind ends at once. */
static const double slow = 1.5;
/* Unmeasured steps end after this time. */
static const double longest_warming = 0.05;

void sonde__session_pace_init(sonde__session_pace *pace)
{
    *pace = (sonde__session_pace){.together = true,
                                  .trying = true,
                                  .warming = FIRST_STEPS,
                                  .stretch = first_stretch,
                                  .mean = {INFINITY, INFINITY}};
}

static void begin(sonde__session_pace *pace, bool together, bool trying)
{
    pace->together = together;
    pace->trying = trying;
    pace->warming = WARM_STEPS;
    pace->done = pace->window_done = pace->steps = 0;
    pace->spent = pace->window = pace->total = 0.0;
}

/* Whether the machine has become busy, or the calls longer, since the last trial: then
 * the measurement starts with this window. */
static bool is_slow_now(sonde__session_pace *pace)
{
    if (pace->trying || pace->window_done < WINDOW_STEPS ||
        pace->window < trial_seconds) {
        return false;
    }
    const bool is_slow =
        pace->window / pace->window_done > slow * pace->mean[pace->together];
    if (is_slow) {
        pace->spent = pace->window;
        pace->done = pace->window_done;
    }
    pace->window_done = 0;
    pace->window = 0.0;
    return is_slow;
}

/* Both kinds are known: takes the faster, for long enough that the trials of the other
 * cost a small share of the time. */
static void take_faster(sonde__session_pace *pace)
{
    const bool together = pace->mean[1] < pace->mean[0];
    const double lost = fabs(pace->mean[0] - pace->mean[1]) * pace->steps * cost_share;

    pace->stretch = together != pace->together
                        ? fmin(2.0 * pace->stretch, longest_stretch)
                        : first_stretch;
    pace->stretch = fmax(pace->stretch, lost);
    begin(pace, together, false);
}

/* Whether the trial, warm or not, is slower than the other kind beyond doubt. */
static bool has_lost(const sonde__session_pace *pace)
{
    return pace->trying && pace->total > trial_seconds &&
           pace->total / pace->steps > slow * pace->mean[!pace->together];
}

void sonde__session_pace_took(sonde__session_pace *pace, double seconds)
{
    const double length = pace->trying ? trial_seconds : pace->stretch;

    pace->total += seconds;
    pace->steps++;
    if (has_lost(pace)) {
        pace->mean[pace->together] = pace->total / pace->steps;
        take_faster(pace);
        return;
    }
    if (pace->warming > 0) {
        pace->warming = pace->total > longest_warming ? 0 : pace->warming - 1;
        return;
    }
    pace->spent += seconds;
    pace->window += seconds;
    pace->done++;
    pace->window_done++;
    if (!is_slow_now(pace) && (pace->done < LEAST_STEPS || pace->spent < length)) {
        return;
    }
    pace->mean[pace->together] = pace->spent / pace->done;
    if (!pace->trying || isinf(pace->mean[!pace->together])) { /* now the other kind */
        begin(pace, !pace->together, true);
    } else {
        take_faster(pace);
    }
}
