/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/lines.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "core/mem.h"

#ifdef LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#else
#define edit_open(lines)               ((void)0)
#define edit_close(lines)              ((void)0)
#define edit_terminal(lines, have)     ((void)0)
#define edit_line(lines, prompt, line) 0
typedef void EditLine;
#endif

#define HISTORY_MAX 1000 /* lines */

/* All that may end a wait for a byte. */
static const int signals[] = { SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                               SIGTSTP, SIGCONT, SIGWINCH };
#define N_SIGNALS (sizeof(signals) / sizeof(*signals))

struct typed_lines {
    EditLine *el; /* NULL: no editor */
    char prompt[16];
    struct sigaction before; /* of SIGINT */
    struct sigaction old[N_SIGNALS];
    sigset_t mask; /* without signals that are held */
#ifdef LIBEDIT
    History *history;
#endif
};

static volatile sig_atomic_t stopped; /* by Ctrl-C */
static volatile sig_atomic_t caught;  /* by a wait: the signal, or 0 */

static void
on_stop(int sig)
{
    (void)sig;
    stopped = 1;
}

static void
on_any(int sig)
{
    caught = sig;
}

void
lines_hold(sigset_t *held)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, held);
}

/* While a line is read, signals come in the middle of a wait, or are held until
 * there is one: an editor's terminal is not what other handlers expect. */
static void
take_signals(struct typed_lines *lines)
{
    struct sigaction act = { .sa_handler = on_any };

    lines_hold(&lines->mask);
    sigfillset(&act.sa_mask); /* one at a time */
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(signals[i], NULL, &lines->old[i]);
        if (lines->old[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &act, NULL);
    }
}

static void
leave_signals(const struct typed_lines *lines)
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &lines->old[i], NULL);
    pthread_sigmask(SIG_SETMASK, &lines->mask, NULL);
}

#ifdef LIBEDIT
/* Gives the terminal the modes of before, or has it for a line again, which is
 * drawn, as wide as the terminal now is. */
static void
edit_terminal(struct typed_lines *lines, bool have)
{
    if (!lines->el)
        return;
    el_set(lines->el, EL_PREP_TERM, have);
    if (have) {
        el_resize(lines->el);
        el_set(lines->el, EL_REFRESH);
    }
}
#endif

/* 1, or 0 at the end, or -1 after Ctrl-C.  A signal that stops or ends the
 * program finds the terminal as it was. */
static int
next_byte(struct typed_lines *lines, char *byte)
{
    for (;;) {
        fd_set in;
        ssize_t n;
        int sig;

        FD_ZERO(&in);
        FD_SET(STDIN_FILENO, &in);
        caught = 0;
        pselect(STDIN_FILENO + 1, &in, NULL, NULL, NULL, &lines->mask);
        sig = caught;
        if (sig == SIGINT) {
            stopped = 1;
            return -1;
        }
        if (sig == 0) {
            n = read(STDIN_FILENO, byte, 1);
            if (n >= 0 || errno != EINTR)
                return n == 1;
            continue;
        }
        edit_terminal(lines, false);
        if (sig != SIGWINCH && sig != SIGCONT) {
            leave_signals(lines);
            raise(sig);
            take_signals(lines);
        }
        edit_terminal(lines, true);
    }
}

#ifdef LIBEDIT
static struct typed_lines *
of(EditLine *el)
{
    struct typed_lines *lines = NULL;

    el_get(el, EL_CLIENTDATA, &lines);
    return lines;
}

static char *
prompt_of(EditLine *el)
{
    return of(el)->prompt;
}

/* The next character.  After Ctrl-C a newline, so that the editor leaves the
 * line as it does any other. */
static int
next_character(EditLine *el, wchar_t *c)
{
    uint32_t code_point = 0xfffd;
    char s[4] = { 0 };
    int rc = next_byte(of(el), s);
    unsigned first = (unsigned char)s[0];
    size_t n = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

    for (size_t i = 1; rc == 1 && i < n; i++)
        rc = next_byte(of(el), s + i);
    if (rc == 1)
        utf8_next(s, n, &code_point);
    *c = rc < 0 ? L'\n' : (wchar_t)code_point;
    return rc != 0;
}

/* Is text UTF-8 here?  What is written to the terminal depends on it. */
static bool
is_utf8(const char *locale)
{
    return setlocale(LC_CTYPE, locale) &&
           strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void
edit_close(struct typed_lines *lines)
{
    if (lines->history)
        history_end(lines->history);
    if (lines->el)
        el_end(lines->el);
    lines->el = NULL;
}

static void
edit_open(struct typed_lines *lines)
{
    const char *term = getenv("TERM");
    HistEvent event;

    if (!term || !*term || strcmp(term, "dumb") == 0 ||
        (!is_utf8("") && !is_utf8("C.UTF-8")))
        return;
    lines->el = el_init("hf-infer", stdin, stdout, stderr);
    lines->history = history_init();
    if (!lines->el || !lines->history) {
        edit_close(lines);
        return;
    }
    history(lines->history, &event, H_SETSIZE, HISTORY_MAX);
    history(lines->history, &event, H_SETUNIQUE, 1);
    el_set(lines->el, EL_CLIENTDATA, lines);
    el_set(lines->el, EL_PROMPT, prompt_of);
    el_set(lines->el, EL_EDITOR, "emacs");
    el_set(lines->el, EL_HIST, history, lines->history);
    el_set(lines->el, EL_GETCFN, next_character);
    el_source(lines->el, NULL);
}

static int
edit_line(struct typed_lines *lines, const char *prompt, struct str *line)
{
    HistEvent event;
    const char *s;
    int n;

    snprintf(lines->prompt, sizeof(lines->prompt), "%s", prompt);
    el_set(lines->el, EL_PREP_TERM, 1); /* before who types sees the prompt */
    s = el_gets(lines->el, &n);
    if (!s || n <= 0) {
        puts(""); /* after the prompt, or ^D */
        return 0;
    }
    str_add(line, s, strcspn(s, "\n"));
    if (line->n > 0 && !stopped)
        history(lines->history, &event, H_ENTER, line->s);
    return 1;
}
#endif

struct typed_lines *
lines_open(void)
{
    struct sigaction act = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    struct typed_lines *lines = xcalloc(1, sizeof(*lines));

    sigaction(SIGINT, &act, &lines->before);
    edit_open(lines);
    return lines;
}

void
lines_close(struct typed_lines *lines)
{
    if (!lines)
        return;
    edit_close(lines);
    sigaction(SIGINT, &lines->before, NULL);
    free(lines);
}

int
lines_next(struct typed_lines *lines, const char *prompt, struct str *line)
{
    int rc = 0;
    char c;

    stopped = 0;
    str_clear(line);
    take_signals(lines);
    if (lines->el) {
        rc = edit_line(lines, prompt, line);
    } else {
        fputs(prompt, stdout);
        fflush(stdout);
        while ((rc = next_byte(lines, &c)) == 1 && c != '\n')
            str_addc(line, c);
        if (rc < 0) /* the terminal has dropped what it had, too */
            str_clear(line);
        if (rc <= 0)
            puts("");
        rc = rc == 0 && line->n > 0 ? 1 : rc;
    }
    rc = stopped ? LINES_STOPPED : rc > 0;
    stopped = 0;
    leave_signals(lines);
    return rc;
}

bool
lines_stopped(void)
{
    return stopped;
}
