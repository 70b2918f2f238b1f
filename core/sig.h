/* SPDX-License-Identifier: ISC */
/*
 * Stopping soon: TERM, INT, USR1, HUP, XCPU (ulimit -St) and --deadline all
 * ask for the same thing, and long loops look at sig_stop() between units of
 * work.
 */
#ifndef CORE_SIG_H
#define CORE_SIG_H

#include <signal.h>
#include <stdbool.h>

#include "core/err.h"

/*
 * sig_install() makes these signals set a flag; a second INT ends the program
 * at once, by that signal.  With 'at_once' any of them does: by the signal,
 * or, if a file was under way, with "stopped by SIGTERM: run it again" and
 * EX_TEMPFAIL.  Temporaries are removed (out_abort_all), and so they are before
 * SIGPIPE ends the program.
 */
void sig_install(bool at_once);

/* sig_deadline() makes sig_stop() true 'seconds' from now. */
void sig_deadline(double seconds);

/* sig_stop(): was a signal caught, or has the deadline passed? */
bool sig_stop(void);

/* sig_reason() is why it is true, 0 while it is not.  sig_adopt() makes it true
 * for the reason that another process of the same run has. */
int sig_reason(void);
void sig_adopt(int reason);

/* sig_stopped() fills 'err' (EX_TEMPFAIL): "stopped by SIGTERM: HOW". */
int sig_stopped(const char *how_to_resume, struct err *err);

/* sig_hold() puts off what sig_install() handles until sig_release(): for steps
 * that only together leave files as they should be. */
void sig_hold(sigset_t *held);
void sig_release(const sigset_t *held);

#endif
