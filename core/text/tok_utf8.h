/* SPDX-License-Identifier: ISC */
/*
 * Invalid UTF-8, and ByteLevel's alphabet: a printable character for each byte.
 */
#ifndef CORE_TEXT_TOK_UTF8_H
#define CORE_TEXT_TOK_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * utf8_bad() is the length of the maximal subpart of an ill-formed sequence at
 * s, which is replaced by one U+FFFD. *cut: the sequence is ill-formed only
 * because the text ends.
 */
size_t utf8_bad(const char *s, size_t n, bool *cut);
#define REPLACEMENT "\xef\xbf\xbd"

/* ByteLevel's alphabet: a byte's character as UTF-8, and back (or -1). */
size_t alphabet_put(char *s, uint8_t byte);
int alphabet_byte(uint32_t code_point);

#endif
