/*
 * team.c - see team.h. Waking is a condition variable, once a run; barriers are two
 * atomics. A stretch of calls is short while trying and long with the faster kind.
 */
#include "nn/run/team.h"
#include "base/memory.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SPINS_BEFORE_YIELD = 4096 };

typedef struct member {
    sonde__session_team *team;
    pthread_t thread;
    int number;
} member;

struct sonde__session_team {
    int threads, started;
    member *members; /* entry 0 is the caller, without thread */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool leaving; /* under lock */
    int sleeping; /* members in wait, under lock */
    void (*job)(void *user, int member);
    void *user;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_uint run; /* counts runs; written under lock */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sonde__session_team_barrier(sonde__session_team *team)
{
    const unsigned generation =
        atomic_load_explicit(&team->generation, memory_order_relaxed);
    const int before = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);

    if (before + 1 == team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        /* Released to the acquire load below, in every other member. */
        atomic_store_explicit(&team->generation, generation + 1, memory_order_release);
        return;
    }
    for (int spins = 0;
         atomic_load_explicit(&team->generation, memory_order_acquire) == generation;) {
        if (++spins < SPINS_BEFORE_YIELD) {
            relax();
        } else {
            (void)sched_yield();
        }
    }
}

/* Waits for a run other than `done`: spins a while, since the next call of a training
 * loop is near, then sleeps. false: the team is being destroyed. */
static bool await_run(sonde__session_team *team, unsigned done)
{
    bool stay = true;

    for (int spins = 0; spins < SPINS_BEFORE_YIELD; spins++) {
        /* Acquires what sonde__session_team_run released: job and user. */
        if (atomic_load_explicit(&team->run, memory_order_acquire) != done) {
            return true;
        }
        relax();
    }
    (void)pthread_mutex_lock(&team->lock);
    team->sleeping++;
    while (atomic_load_explicit(&team->run, memory_order_acquire) == done &&
           !team->leaving) {
        (void)pthread_cond_wait(&team->wake, &team->lock);
    }
    team->sleeping--;
    stay = !team->leaving;
    (void)pthread_mutex_unlock(&team->lock);
    return stay;
}

static void *member_main(void *argument)
{
    const member *self = argument;
    sonde__session_team *team = self->team;
    unsigned done = 0;

    while (await_run(team, done)) {
        done++;
        team->job(team->user, self->number);
        sonde__session_team_barrier(team);
    }
    return NULL;
}

sonde_err sonde__session_team_create(int threads, sonde__session_team **out)
{
    sonde__session_team *team = sonde__malloc_aligned(64, sizeof *team);

    if (team == NULL) {
        return SONDE_ENOMEM;
    }
    *team = (sonde__session_team){.threads = threads, .started = 1};
    (void)pthread_mutex_init(&team->lock, NULL);
    (void)pthread_cond_init(&team->wake, NULL);
    atomic_init(&team->arrived, 0);
    atomic_init(&team->generation, 0);
    atomic_init(&team->run, 0);
    team->members = sonde__calloc((size_t)threads, sizeof *team->members);
    if (team->members == NULL) {
        sonde__session_team_destroy(team);
        return SONDE_ENOMEM;
    }
    for (int i = 1; i < threads; i++) {
        team->members[i] = (member){.team = team, .number = i};
        if (pthread_create(&team->members[i].thread, NULL, member_main,
                           &team->members[i]) != 0) {
            sonde__session_team_destroy(team);
            return SONDE_EIO;
        }
        team->started++;
    }
    *out = team;
    return SONDE_OK;
}

void sonde__session_team_destroy(sonde__session_team *team)
{
    if (team == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&team->lock);
    team->leaving = true;
    (void)pthread_cond_broadcast(&team->wake);
    (void)pthread_mutex_unlock(&team->lock);
    for (int i = 1; i < team->started; i++) {
        (void)pthread_join(team->members[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&team->wake);
    (void)pthread_mutex_destroy(&team->lock);
    sonde__free(team->members);
    sonde__free(team);
}

void sonde__session_team_run(sonde__session_team *team,
                             void (*job)(void *user, int member), void *user)
{
    (void)pthread_mutex_lock(&team->lock);
    team->job = job;
    team->user = user;
    (void)atomic_fetch_add_explicit(&team->run, 1, memory_order_release);
    if (team->sleeping > 0) {
        (void)pthread_cond_broadcast(&team->wake);
    }
    (void)pthread_mutex_unlock(&team->lock);
    job(user, 0);
    sonde__session_team_barrier(team);
}

/* === pace =========================================================================== */

enum { FIRST_CALLS = 16, WARM_CALLS = 2, TRY_CALLS = 8 };
static const double stretch_seconds = 0.2;

void sonde__session_pace_init(sonde__session_pace *pace, bool fixed)
{
    *pace = (sonde__session_pace){.fixed = fixed,
                                  .together = true,
                                  .trying = true,
                                  .warming = FIRST_CALLS,
                                  .left = TRY_CALLS,
                                  .mean = {INFINITY, INFINITY}};
}

/* Enough calls to make the cost of trying the other kind small. */
static int long_stretch(double seconds_a_call)
{
    const double calls = stretch_seconds / fmax(seconds_a_call, 1e-6);

    return calls > 8 * TRY_CALLS ? (int)calls : 8 * TRY_CALLS;
}

void sonde__session_pace_took(sonde__session_pace *pace, double seconds)
{
    if (pace->fixed) {
        return;
    }
    if (pace->warming > 0) {
        pace->warming--;
        return;
    }
    pace->spent += seconds;
    pace->done++;
    if (--pace->left > 0) {
        return;
    }
    pace->mean[pace->together] = pace->spent / pace->done;
    pace->spent = 0.0;
    pace->done = 0;
    pace->warming = WARM_CALLS;
    if (!pace->trying || isinf(pace->mean[!pace->together])) { /* now the other kind */
        pace->together = !pace->together;
        pace->trying = true;
        pace->left = TRY_CALLS;
    } else { /* both are known: take the faster */
        pace->together = pace->mean[1] < pace->mean[0];
        pace->trying = false;
        pace->left = long_stretch(pace->mean[pace->together]);
    }
}
