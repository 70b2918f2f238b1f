/* SPDX-License-Identifier: ISC */
/*
 * Growing byte strings, UTF-8, and the escaping of everything that comes from
 * a file before a person's terminal sees it.
 */
#ifndef CORE_STR_H
#define CORE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing string.  Starts as { 0 }; 's' is NUL-terminated once anything was
 * added (the NUL is not counted) and belongs to the struct until str_free().
 * Growing dies when memory is gone, as xmalloc() does.
 */
struct str {
    char *s;
    size_t n; /* bytes used */
    size_t cap;
};

void str_add(struct str *str, const void *bytes, size_t nbytes);
void str_adds(struct str *str, const char *s);
void str_addc(struct str *str, char c);
void str_addf(struct str *str, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void str_addv(struct str *str, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
void str_reserve(struct str *str, size_t nbytes); /* room for nbytes more */
void str_clear(struct str *str);                  /* n = 0, memory is kept */
void str_free(struct str *str);

/* str_ends() is where the end of a string begins, or NULL if it has another. */
const char *str_ends(const char *s, const char *end);

/*
 * str_esc() appends 'nbytes' of 's' made safe to print on one line: valid,
 * printable UTF-8 stays; a backslash becomes \\, newline, tab and return \n
 * \t \r, other control characters and invalid bytes \xHH, and what
 * utf8_deceives() \u{HHHH}.
 */
void str_esc(struct str *str, const char *s, size_t nbytes);

/*
 * str_columns() is how many columns of a terminal valid UTF-8 takes at most:
 * two for Chinese, Japanese, Korean and whatever may be as wide.
 * str_esc_end() is str_esc(), but of more columns than 'max' the end alone,
 * after "...".
 */
size_t str_columns(const char *s, size_t nbytes);
void str_esc_end(struct str *str, const char *s, size_t nbytes, size_t max);

/*
 * str_esc_text() appends text of many lines made safe for a terminal: control
 * characters but newline and tab, invalid bytes, and the embeddings, overrides
 * and isolates that reorder a line (U+202A to U+202E, U+2066 to U+2069) as
 * str_esc() has them.  The rest stays, also what is invisible(): many scripts
 * and emoji are made with it.
 */
void str_esc_text(struct str *str, const char *s, size_t nbytes);

/* str_xml() appends text for XML or HTML, also in quotes: & < > " ' escaped.
 * What XML has no form for at all, such as control characters, U+FFFE and
 * U+FFFF, is str_esc()'s to take out. */
void str_xml(struct str *str, const char *s, size_t nbytes);

/*
 * utf8_next() reads the code point that starts at s[0], 'nbytes' > 0 being
 * there.  Returns its length 1..4, or 0 if the bytes are not valid UTF-8
 * (overlong forms, surrogates, above U+10FFFF, cut off).
 */
int utf8_next(const char *s, size_t nbytes, uint32_t *code_point);

/*
 * invisible(): has a code point the property Default_Ignorable_Code_Point?
 * Joiners, variation selectors, fillers, tags and bidi marks have it, and code
 * points that Unicode reserves for more of them.  Text needs some of them: a
 * name does not.  core/invisible.c has the table.
 */
bool invisible(uint32_t code_point);

/*
 * utf8_deceives(): does a code point drive a terminal (C1), end a line (U+2028,
 * U+2029), or show as nothing: what is invisible(), U+2800, annotation marks
 * (U+FFF9 to U+FFFB), and U+FFFE and U+FFFF, which are no characters?
 */
bool utf8_deceives(uint32_t code_point);

/* utf8_put() writes a code point's 1..4 bytes and returns their number. */
int utf8_put(char *s, uint32_t code_point);

/* utf8_valid() is how many leading bytes of 's' are valid UTF-8. */
size_t utf8_valid(const char *s, size_t nbytes);

#endif
