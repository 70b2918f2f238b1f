/* SPDX-License-Identifier: ISC */
/*
 * Python's methods of strings, on those of templates: each byte of a result
 * keeps where it is from.
 */
#ifndef CORE_TEXT_TEMPLATE_STR_H
#define CORE_TEXT_TEMPLATE_STR_H

#include "core/text/template_value.h"

/* tmpl_strip() removes white space, or those of 'chars', from the ends. */
struct tmpl_value tmpl_strip(struct tmpl_heap *heap,
                             const struct tmpl_text *text,
                             const struct tmpl_text *chars, bool left,
                             bool right);

/* tmpl_split() appends the pieces of a string between separators, or for NULL
 * between white space, to a list: at most 'max' are cut off, from the left or
 * from the right.  A separator is not empty. */
void tmpl_split(struct tmpl_heap *heap, const struct tmpl_text *text,
                const struct tmpl_text *separator, size_t max, bool right,
                struct tmpl_list *list);
void tmpl_splitlines(struct tmpl_heap *heap, const struct tmpl_text *text,
                     bool keep_ends, struct tmpl_list *list);

/* tmpl_replace() replaces the first 'max' of 'old'. */
struct tmpl_value tmpl_replace(struct tmpl_heap *heap,
                               const struct tmpl_text *text,
                               const struct tmpl_text *old,
                               const struct tmpl_text *new, size_t max);

/* tmpl_search() is the byte at which a string has another for the first time
 * from byte 'from' on, or for the last time; SIZE_MAX: nowhere. */
size_t tmpl_search(struct tmpl_heap *heap, const struct tmpl_text *text,
                   const struct tmpl_text *what, size_t from, bool last);
size_t tmpl_count(struct tmpl_heap *heap, const struct tmpl_text *text,
                  const struct tmpl_text *what);

enum tmpl_case {
    TMPL_UPPER,
    TMPL_LOWER,
    TMPL_CAPITALIZE, /* the first letter upper, the others lower */
    TMPL_TITLE,      /* that of each word, as str.title() has words */
    TMPL_TITLE_WORDS /* as the filter has them */
};
struct tmpl_value tmpl_in_case(struct tmpl_heap *heap,
                               const struct tmpl_text *text,
                               enum tmpl_case how);

/* tmpl_all_are(): is there a character, and are all of that kind?  'a' letters,
 * 'd' digits, 'n' either, 's' white space; of those that have a case, 'u' upper
 * and 'l' lower. */
bool tmpl_all_are(const struct tmpl_text *text, char kind);

/* tmpl_escape() is the text of a Markup, escaped for HTML. */
struct tmpl_value tmpl_escape(struct tmpl_heap *heap,
                              const struct tmpl_text *text);

#endif
