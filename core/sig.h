/*
 * Stopping soon: TERM, INT, USR1 and --deadline all ask for the same thing,
 * and long loops look at sig_stop() between units of work.
 */
#ifndef CORE_SIG_H
#define CORE_SIG_H

#include <stdbool.h>

#include "core/err.h"

/*
 * sig_install() makes TERM, INT and USR1 set a flag.  A second INT, or any of
 * them when sig_install() was told 'at_once', removes all temporaries
 * (out_abort_all) and ends the program by that signal.
 */
void sig_install(bool at_once);

/* sig_deadline() makes sig_stop() true 'seconds' from now. */
void sig_deadline(double seconds);

bool sig_stop(void);

/* sig_stopped() fills 'err' (EX_TEMPFAIL): "stopped by SIGTERM: HOW". */
int sig_stopped(const char *how_to_resume, struct err *err);

#endif
