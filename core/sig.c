/* SPDX-License-Identifier: ISC */
#include "core/sig.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/compat.h"
#include "core/out.h"

static const struct {
    int number;
    const char *name;
} stops[] = {
    { SIGTERM, "SIGTERM" }, { SIGINT, "SIGINT" },   { SIGUSR1, "SIGUSR1" },
    { SIGHUP, "SIGHUP" },   { SIGXCPU, "SIGXCPU" },
};
#define N_STOPS (sizeof(stops) / sizeof(stops[0]))

#define DEADLINE 9999 /* no signal's number */

static atomic_int caught; /* the signal's number; threads look at it, too */
static double deadline;   /* of clock_s(); 0: none */

static const char *
name(int sig)
{
    for (size_t i = 0; i < N_STOPS; i++)
        if (stops[i].number == sig)
            return stops[i].name;
    return "the deadline";
}

/* Ends the program as the signal would have. */
static void
end_by(int sig)
{
    sigset_t set;

    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void
say(const char *what)
{
    ssize_t n = write(2, what, strlen(what));

    (void)n;
}

static void
on_end(int sig)
{
    if (!out_abort_all())
        end_by(sig);
    say(program_name());
    say(": stopped by ");
    say(name(sig));
    say(": run it again\n");
    _exit(EX_TEMPFAIL);
}

/* A reader that went away: it is nobody's mistake, and nothing is said. */
static void
on_pipe(int sig)
{
    out_abort_all();
    end_by(sig);
}

static void
on_stop(int sig)
{
    if (sig == SIGINT && caught == SIGINT) {
        out_abort_all();
        end_by(sig);
    }
    caught = sig;
}

void
sig_install(bool at_once)
{
    struct sigaction act = { .sa_handler = at_once ? on_end : on_stop,
                             .sa_flags = SA_RESTART };
    struct sigaction old;

    /* one at a time: the first decides how it ends */
    for (size_t i = 0; i < N_STOPS; i++)
        sigaddset(&act.sa_mask, stops[i].number);
    /* nohup and background shells ignore some: they stay ignored */
    for (size_t i = 0; i < N_STOPS; i++)
        if (sigaction(stops[i].number, NULL, &old) < 0 ||
            old.sa_handler != SIG_IGN)
            sigaction(stops[i].number, &act, NULL);
    act.sa_handler = on_pipe;
    if (sigaction(SIGPIPE, NULL, &old) < 0 || old.sa_handler != SIG_IGN)
        sigaction(SIGPIPE, &act, NULL);
}

void
sig_deadline(double seconds)
{
    deadline = clock_s() + seconds;
}

bool
sig_stop(void)
{
    return caught || (deadline > 0 && clock_s() >= deadline);
}

int
sig_reason(void)
{
    int sig = caught;

    return sig ? sig : sig_stop() ? DEADLINE : 0;
}

void
sig_adopt(int reason)
{
    if (!caught)
        caught = reason;
}

int
sig_stopped(const char *how_to_resume, struct err *err)
{
    return err_set(err, EX_TEMPFAIL, "stopped by %s: %s", name(caught),
                   how_to_resume);
}

void
sig_hold(sigset_t *held)
{
    sigset_t all;

    sigemptyset(&all);
    for (size_t i = 0; i < N_STOPS; i++)
        sigaddset(&all, stops[i].number);
    pthread_sigmask(SIG_BLOCK, &all, held);
}

void
sig_release(const sigset_t *held)
{
    pthread_sigmask(SIG_SETMASK, held, NULL);
}
