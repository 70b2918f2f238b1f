/* SPDX-License-Identifier: ISC */
/*
 * Tokenizers: a Hugging Face tokenizer.json of the BPE kind, both directions.
 */
#ifndef CORE_TEXT_TOK_H
#define CORE_TEXT_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

struct tok;

/* A growing list of token ids; starts as { 0 }, ends with ids_free(). */
struct ids {
    int32_t *id;
    size_t n, cap;
};

/* ids_add() appends one, ids_append() n of another list from 'at' on; running
 * out of memory ends the process. */
void ids_add(struct ids *ids, int32_t id);
void ids_append(struct ids *ids, const struct ids *from, size_t at, size_t n);
void ids_free(struct ids *ids);

/*
 * tok_open() reads tokenizer.json: the model BPE (without dropout, prefix and
 * suffix); normalizers NFC, NFD, NFKC, NFKD, Prepend, Replace; pre-tokenizers
 * ByteLevel, Split, Digits, Metaspace; post-processors ByteLevel,
 * TemplateProcessing; decoders ByteLevel, Metaspace, Replace, ByteFallback,
 * Fuse, Strip; and Sequences of them.  'truncation' and 'padding' are ignored
 * with a warning: a text is never cut. -1 with 'err' set: EX_NOINPUT,
 * EX_DATAERR (a part that is not supported is named; so is what a regex may not
 * have: Oniguruma's sets in sets, \h, "}+", options other than i and x).
 * Read-only after opening: threads may share it.  Owner: the caller, until
 * tok_close(). tok_parse() does the same from memory.
 */
int tok_open(struct tok **tok, const char *path, struct err *err);
int tok_parse(struct tok **tok, const char *json, size_t nbytes,
              const char *name, struct err *err);
void tok_close(struct tok *tok);

enum {
    TOK_SPECIAL = 1, /* encode: add what the post-processor adds (bos..) */
    TOK_PLAIN = 2,   /* encode: text that spells a special token is text, also
                      * where the vocabulary or a merge has its name */
    TOK_MORE = 4, /* encode: the text continues after other ids: no "first" */
    TOK_OPEN = 8  /* encode: more follows: TOK_SPECIAL adds no end */
};

/*
 * tok_utf8() checks a text from outside before tok_encode(): if it is not
 * UTF-8, 'fixed' becomes the text with U+FFFD there, with a warning; or with
 * 'strict' it is an error (EX_DATAERR).  Both messages begin with 'name'.
 * 'fixed' stays empty if the text is valid.
 */
int tok_utf8(const char *name, const char *text, size_t nbytes, bool strict,
             struct str *fixed, struct err *err);

/*
 * The reference is Hugging Face tokenizers 0.23.2, whose ids these are.  A
 * regex that backtracks without end is EX_DATAERR when that happens, and so is
 * a step that makes a text longer than 64 times its bytes and 1 MiB (encoding:
 * or 2 GiB), whether the text comes in one piece or is cut.  So work and memory
 * are a multiple of the text's, whatever the file: times its 16 steps.
 *
 * tok_encode() appends the ids of 'nbytes' of text.  Invalid UTF-8 becomes
 * U+FFFD; a character that neither vocabulary nor unk_token covers is dropped,
 * as the reference does.  -1 with 'err' set: EX_DATAERR.
 */
int tok_encode(const struct tok *tok, const char *text, size_t nbytes,
               int flags, struct ids *ids, struct err *err);

/*
 * tok_encode_marked() is tok_encode() of UTF-8 of which 'data' [nbytes] says
 * where it is from: 0, a template, or 1, what somebody wrote.  A special token
 * whose first or last byte is somebody's is text; "<|" and "|>" of a template
 * make one of any name between them.  EX_DATAERR, too, where a normalizer joins
 * what is on both sides of a border, and special tokens are searched in that.
 */
int tok_encode_marked(const struct tok *tok, const char *text,
                      const uint8_t *data, size_t nbytes, int flags,
                      struct ids *ids, struct err *err);

/*
 * tok_warn_added() warns of what TOK_SPECIAL has made of a text's ids: an end
 * that the tokenizer adds, unless 'flags' have TOK_OPEN, and a beginning that
 * the text spells and the tokenizer adds, too.  Each once, as *said remembers,
 * which starts as 0.
 */
void tok_warn_added(const struct tok *tok, const int32_t *ids, size_t n,
                    int flags, int *said);

/*
 * tok_decode() appends the text of n ids; special tokens are left out if
 * 'skip_special' (all of them: the reference keeps those that its normalizer
 * changes).  Incomplete UTF-8 comes out as U+FFFD.  An id beyond the
 * vocabulary gives nothing, as in the reference.  -1 with 'err' set:
 * EX_DATAERR.
 */
int tok_decode(const struct tok *tok, const int32_t *ids, size_t n,
               bool skip_special, struct str *text, struct err *err);

/*
 * Streaming: tok_stream_add() appends to 'text' what is certain after one
 * more id (whole UTF-8 characters only), tok_stream_end() the rest.  The
 * concatenation equals tok_decode() of all ids; after -1 only
 * tok_stream_free() is left.
 */
struct tok_stream;
struct tok_stream *tok_stream_new(const struct tok *tok, bool skip_special);
int tok_stream_add(struct tok_stream *stream, int32_t id, struct str *text,
                   struct err *err);
int tok_stream_end(struct tok_stream *stream, struct str *text,
                   struct err *err);
void tok_stream_free(struct tok_stream *stream);

/* Look-ups: id of a token's text or -1; the token's text, followed by a NUL, or
 * NULL. */
int32_t tok_id(const struct tok *tok, const char *token);
const char *tok_text(const struct tok *tok, int32_t id, size_t *nbytes);
bool tok_is_special(const struct tok *tok, int32_t id);

/*
 * tok_bytes() appends what a token is in the middle of a text, which may be
 * part of a character: " is" where the vocabulary has "\u0120is".  False: no
 * token. What its decoder does to whole texts (Strip, Fuse) is not done.
 */
bool tok_bytes(const struct tok *tok, int32_t id, struct str *to);
size_t tok_size(const struct tok *tok); /* ids are 0 .. tok_size()-1 */

#endif
