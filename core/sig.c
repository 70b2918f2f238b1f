#include "core/sig.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "core/out.h"

static volatile sig_atomic_t caught; /* the signal's number */
static double deadline;              /* seconds, monotonic; 0: none */

static double
now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Ends the program as the signal would have, temporaries removed. */
static void
end_now(int sig)
{
    out_abort_all();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void
on_stop(int sig)
{
    if (sig == SIGINT && caught == SIGINT)
        end_now(sig);
    caught = sig;
}

void
sig_install(bool at_once)
{
    static const int stops[] = { SIGTERM, SIGINT, SIGUSR1, SIGHUP };
    struct sigaction act = { .sa_handler = at_once ? end_now : on_stop };
    struct sigaction old;

    sigemptyset(&act.sa_mask);
    /* SA_NODEFER lets raise() in end_now() take effect at once */
    act.sa_flags = at_once ? SA_NODEFER : SA_RESTART;
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        /* nohup and background shells ignore some: that is their wish */
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(stops[i], &act, NULL);
    }
}

void
sig_deadline(double seconds)
{
    deadline = now() + seconds;
}

bool
sig_stop(void)
{
    return caught || (deadline > 0 && now() >= deadline);
}

static const char *
name(int sig)
{
    switch (sig) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    case SIGHUP:
        return "SIGHUP";
    default:
        return "the deadline";
    }
}

int
sig_stopped(const char *how_to_resume, struct err *err)
{
    return err_set(err, EX_TEMPFAIL, "stopped by %s: %s", name(caught),
                   how_to_resume);
}
