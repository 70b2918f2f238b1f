/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/lines.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#endif

#define HISTORY_MAX 1000 /* lines */
#define CTRL(key)   ((key) - 'A' + 1)

static struct sigaction before;       /* of SIGINT */
static volatile sig_atomic_t stopped; /* by Ctrl-C */
static volatile sig_atomic_t waits;   /* for a byte, which it interrupts */
static sigjmp_buf interrupted;

static void
on_stop(int sig)
{
    (void)sig;
    stopped = 1;
    if (waits)
        siglongjmp(interrupted, 1);
}

/* 1, or 0 at the end and after Ctrl-C. */
static int
next_byte(char *byte)
{
    volatile ssize_t n = 0;

    if (sigsetjmp(interrupted, 1) == 0) {
        waits = 1;
        if (!stopped)
            n = read(STDIN_FILENO, byte, 1);
    }
    waits = 0;
    return n == 1;
}

/* A line as the terminal gives it: 1, or 0 at the end. */
static int
plain_line(const char *prompt, struct str *line)
{
    char c;
    int rc;

    fputs(prompt, stdout);
    fflush(stdout);
    while ((rc = next_byte(&c)) == 1 && c != '\n')
        str_addc(line, c);
    if (stopped) /* the terminal has dropped what it had, too */
        str_clear(line);
    if (rc == 0)
        puts("");
    return rc || line->n > 0;
}

#ifdef LIBEDIT
static EditLine *editor; /* NULL: none */
static History *past;
static const char *shown; /* the prompt */

/* What finds the terminal as it was before a line is edited, and the line drawn
 * anew after it, as wide as the terminal then is. */
static const int signals[] = { SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH };
#define N_SIGNALS (sizeof(signals) / sizeof(*signals))
static struct sigaction others[N_SIGNALS];

static void
on_signal(int sig)
{
    struct sigaction own;
    size_t i = 0;

    while (signals[i] != sig)
        i++;
    if (sig != SIGWINCH) {
        el_set(editor, EL_PREP_TERM, 0);
        sigaction(sig, &others[i], &own);
        raise(sig);
        sigaction(sig, &own, NULL);
        el_set(editor, EL_PREP_TERM, 1);
    }
    el_resize(editor);
    el_set(editor, EL_REFRESH);
}

/* Ctrl-C and Ctrl-Z, which are keys while a line is edited: no signal comes
 * before the wait that it is to end. */
static unsigned char
on_key(EditLine *el, int key)
{
    if (key == CTRL('Z')) {
        raise(SIGTSTP);
    } else {
        stopped = 1;
        el_push(el, "\n");
    }
    return CC_NORM;
}

static char *
prompt_of(EditLine *el)
{
    (void)el;
    return (char *)(uintptr_t)shown;
}

/* Is text UTF-8 here?  What is written to the terminal depends on it. */
static bool
is_utf8(const char *locale)
{
    return setlocale(LC_CTYPE, locale) &&
           strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void
edit_close(void)
{
    if (past)
        history_end(past);
    if (editor)
        el_end(editor);
    editor = NULL;
}

static void
edit_open(void)
{
    static const char *const keys[] = { "^C", "^Z" };
    const char *term = getenv("TERM");
    HistEvent event;

    if (!term || !*term || strcmp(term, "dumb") == 0 ||
        (!is_utf8("") && !is_utf8("C.UTF-8")))
        return;
    editor = el_init("hf-infer", stdin, stdout, stderr);
    past = history_init();
    if (!editor || !past) {
        edit_close();
        return;
    }
    history(past, &event, H_SETSIZE, HISTORY_MAX);
    history(past, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_PROMPT, prompt_of);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, past);
    el_source(editor, NULL);
    el_set(editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(editor, EL_ADDFN, "stop", "Ctrl-C or Ctrl-Z", on_key);
    for (int i = 0; i < 2; i++) {
        el_set(editor, EL_BIND, keys[i], "stop", NULL);
        el_set(editor, EL_BIND, "-a", keys[i], "stop", NULL); /* of vi */
    }
}

static int
edit_line(const char *prompt, struct str *line)
{
    struct sigaction act = { .sa_handler = on_signal,
                             .sa_flags = SA_RESTART | SA_NODEFER };
    HistEvent event;
    const char *s;
    int n;

    shown = prompt;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(signals[i], NULL, &others[i]);
        if (others[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &act, NULL);
    }
    el_set(editor, EL_PREP_TERM, 1); /* before who types sees the prompt */
    s = el_gets(editor, &n);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &others[i], NULL);
    if (!s || n <= 0) {
        puts(""); /* after the prompt, or ^D */
        return 0;
    }
    str_add(line, s, strcspn(s, "\n"));
    if (line->n > 0 && !stopped)
        history(past, &event, H_ENTER, line->s);
    return 1;
}
#endif

void
lines_open(void)
{
    struct sigaction act = { .sa_handler = on_stop, .sa_flags = SA_RESTART };

    sigaction(SIGINT, &act, &before);
#ifdef LIBEDIT
    edit_open();
#endif
}

void
lines_close(void)
{
#ifdef LIBEDIT
    edit_close();
#endif
    sigaction(SIGINT, &before, NULL);
}

int
lines_next(const char *prompt, struct str *line)
{
    int rc;

    stopped = 0;
    str_clear(line);
#ifdef LIBEDIT
    rc = editor ? edit_line(prompt, line) : plain_line(prompt, line);
#else
    rc = plain_line(prompt, line);
#endif
    rc = stopped ? LINES_STOPPED : rc;
    stopped = 0;
    return rc;
}

bool
lines_stopped(void)
{
    return stopped;
}
