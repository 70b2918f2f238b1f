/* SPDX-License-Identifier: ISC */
/*
 * Chat templates: the part of Jinja that templates of models use, rendered as
 * transformers does by Jinja 3.1: trim_blocks, lstrip_blocks, break and
 * continue, {% generation %}, tojson, raise_exception(), strftime_now().
 * A template reaches no file and nothing of the environment but the time, and
 * what it may compute is bounded.  man/chat.5 has what it may use.
 */
#ifndef CORE_TEXT_TEMPLATE_H
#define CORE_TEXT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

/* Bounds: of a template's own bytes; of how deep its blocks and expressions
 * nest, or a value; how deep it runs, through its macros; of a rendering's
 * steps, one for each expression and for each 64 bytes that it reads or
 * moves; of bytes of a text, and of memory for all its values. */
#define TEMPLATE_MAX_BYTES  ((size_t)4 << 20)
#define TEMPLATE_MAX_NESTED 200
#define TEMPLATE_MAX_DEPTH  2000
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define TEMPLATE_MAX_STEPS  ((size_t)200000)
#define TEMPLATE_MAX_TEXT   ((size_t)1 << 20)
#define TEMPLATE_MAX_MEMORY ((size_t)32 << 20)
#else
#define TEMPLATE_MAX_STEPS  ((size_t)10000000)
#define TEMPLATE_MAX_TEXT   ((size_t)16 << 20)
#define TEMPLATE_MAX_MEMORY ((size_t)512 << 20)
#endif

struct template;

/*
 * template_open() parses a template; 'name' begins its messages: "NAME: line 7:
 * {% include %} is not supported".  -1 with 'err' set (EX_DATAERR).
 * Owner: the caller, until template_close().
 * Threads: any number may render the same one.
 */
int template_open(struct template **t, const char *name, const char *text,
                  size_t nbytes, struct err *err);
void template_close(struct template *t);

/* template_mentions(): does the template use a variable of that name? */
bool template_mentions(const struct template *t, const char *variable);

#define RENDERED_DATA UINT32_MAX

/* A rendered text.  Starts as { 0 }. */
struct rendered {
    struct str text;
    /* Where its bytes are from, ascending by their ends: 0 the template's own
     * text, i + 1 a text of messages[i], RENDERED_DATA one of another
     * variable. */
    struct rendered_run {
        size_t end;
        uint32_t of;
    } * runs;
    size_t n_runs, cap_runs;
    /* What {% generation %} .. {% endgeneration %} have rendered, ascending. */
    struct rendered_span {
        size_t begin, end;
    } * said;
    size_t n_said, cap_said;
    bool has_generation; /* the template has such blocks */
};

/*
 * template_render() renders with the variables of a JSON object.  The values of
 * bos_token, eos_token and other variables with names in _token count as the
 * template's own text.  -1 with 'err' set (EX_DATAERR): "NAME: line N: what is
 * wrong", the message of raise_exception() after "raise_exception: ".
 * Owner of 'out': the caller, until rendered_free(), after an error, too.
 */
int template_render(const struct template *t, const json_t *vars,
                    struct rendered *out, struct err *err);
void rendered_free(struct rendered *r);

#endif
