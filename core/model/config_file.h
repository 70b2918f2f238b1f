/* SPDX-License-Identifier: ISC */
/*
 * DIR/config.json as it is: for keys that config_load() does not read, and for
 * models that it refuses.
 */
#ifndef CORE_MODEL_CONFIG_FILE_H
#define CORE_MODEL_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/js.h"
#include "core/model/family.h"
#include "core/str.h"

struct config_file {
    struct str path;
    struct js root; /* of any type */
    json_t *v;
};

/*
 * config_file_open(): -1 with 'err' set, as js_load(), or as stdir_check(),
 * which makes the model's files inputs, or says what is there instead.
 * Owner: the caller, until config_file_close(), after an error, too.
 */
int config_file_open(struct config_file *f, const char *dir, struct err *err);
void config_file_close(struct config_file *f); /* a zeroed struct is fine */

/* config_file_near() opens that of a directory, or that next to a file of its
 * weights: 1; 0: there is none, and nothing to close; -1 as above. */
int config_file_near(struct config_file *f, const char *path, struct err *err);

/* config_file_family() is the row of its model_type, or of that of its
 * text_config, unless it is a vision encoder's; NULL: of neither. */
const struct model_family *config_file_family(const struct config_file *f);

/* config_family() is that of the model in a directory, or next to a file of
 * its weights; *family is NULL where no config.json is there, too.  -1 with
 * 'err' set: it cannot be read. */
int config_family(const struct model_family **family, const char *path,
                  struct err *err);

/* config_refuse_vision(): -1 and EX_DATAERR for the family of a model in a
 * directory that reads no text; NULL is fine. */
int config_refuse_vision(const struct model_family *family, const char *dir,
                         struct err *err);

/* config_file_text() appends the file's bytes.  -1 with 'err' set. */
int config_file_text(struct str *to, const char *dir, struct err *err);

/*
 * config_file_edit() appends the file with members of its object changed, at
 * most 64: one that is there gets another value, as JSON, or goes where that is
 * NULL; others are added at the end, unless 'if_there'.  All else stays as it
 * is spelled.  -1 with 'err' set.
 */
struct config_edit {
    const char *key, *value;
    bool if_there;
};
int config_file_edit(struct str *to, const char *dir,
                     const struct config_edit *edits, size_t n,
                     struct err *err);

#endif
