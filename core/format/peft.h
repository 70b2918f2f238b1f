/* SPDX-License-Identifier: ISC */
/*
 * PEFT's adapter_config.json: rank and scale of a pair of LoRA's matrices, and
 * what would change the numbers but is not supported, refused by its name.
 * Source: Hugging Face peft 0.17, LoraConfig and get_pattern_key().
 */
#ifndef CORE_FORMAT_PEFT_H
#define CORE_FORMAT_PEFT_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/js.h"
#include "core/regex.h"

#define PEFT_CONFIG     "adapter_config.json"
#define PEFT_MODEL      "adapter_model.safetensors"
#define PEFT_ROOT       "base_model.model."  /* before a module's name */
#define PEFT_BASE_LAYER ".base_layer.weight" /* after it: what is adapted */

/* rank_pattern or alpha_pattern: a pattern that is only a name, as peft's EVA
 * writes one for each module, is looked up, not matched. */
struct peft_patterns {
    size_t n, n_names, n_regexes;
    struct peft_pattern *list;     /* private; [n], in order of the file */
    struct peft_name *names;       /* private; [n_names] */
    struct peft_pattern **regexes; /* [n_regexes], in order of the file */
};

/* Modules' names, or their ends. */
struct peft_list {
    size_t n;
    const char **list; /* [n], sorted */
};

/* All of it belongs to it and dies with peft_close(); read-only
 * meanwhile, but matching counts its steps there: one thread at a time. */
struct peft {
    char *path; /* of adapter_config.json */
    json_t *root;
    struct js config;
    int64_t r;
    double alpha;
    bool rslora; /* the scale is alpha / sqrt(r), not alpha / r */
    struct peft_patterns r_of, alpha_of, excluded;
    struct peft_patterns target; /* target_modules, where it is one pattern */
    struct peft_list targets, others; /* target_modules, exclude_modules */
    struct peft_list parameters;      /* target_parameters */
    size_t n_layers;
    int64_t *layers;         /* layers_to_transform: [n_layers], sorted */
    struct regex_work *work; /* of all modules together */
};

/* The configuration of one module. */
struct peft_pair {
    int64_t r;    /* A is [r, in], B [out, r] */
    double scale; /* y += scale B A x */
    double alpha; /* scale * r: finite as F32, too */
};

/*
 * peft_open() reads DIR/adapter_config.json.  -1 with 'err' set: EX_NOINPUT,
 * EX_IOERR, EX_DATAERR (not LoRA, a kind of it that is not supported, more than
 * 65536 patterns of a kind, 4096 that are not names, or 16 MiB of them
 * compiled). After an error, too, peft_close() may be called.
 */
int peft_open(struct peft *p, const char *dir, struct err *err);
void peft_close(struct peft *p); /* a zeroed struct is fine */

/*
 * peft_pair() is rank and scale of a module, with PEFT_ROOT before its name or
 * without: those of the first pattern that matches the name, or its end after
 * a dot.  -1 with 'err' set (EX_DATAERR): the name has over 64 dots, matching
 * takes too many steps, or an alpha is beyond F32.
 */
int peft_pair(const struct peft *p, const char *module, struct peft_pair *pair,
              struct err *err);

/*
 * peft_target() is 0 if PEFT would load tensors of this module: target_modules
 * are names or ends of them, or one pattern of whole names; one that this does
 * not read takes anything.  -1 with 'err' set (EX_DATAERR).
 */
int peft_target(const struct peft *p, const char *module, struct err *err);

/* peft_parameter(): does target_parameters have a module's parameter, "..
 * experts.down_proj", or an end of its name? */
bool peft_parameter(const struct peft *p, const char *name);

/* peft_adapts(): would PEFT adapt a module of the base?  No where
 * target_modules is a pattern that this does not read.  peft_unused() counts
 * the patterns that peft_pair() has not used so far, and names the first,
 * "alpha_pattern.q_proj".  -1 with 'err' set (EX_DATAERR). */
int peft_adapts(struct peft *p, const char *module, bool *yes, struct err *err);
size_t peft_unused(const struct peft_patterns *of, const char **first);

/*
 * peft_warn() reports, each in one line, what the adapter of these tensors has
 * in vain: members of the configuration that are true or objects, and not
 * known; patterns that peft_pair() has used for no module; and the modules of
 * 'base', unless that is NULL, whose names begin with 'under', and which are
 * 'used' [base->n_tensors], unless that is NULL, for which target_modules
 * promises tensors and there are none, as after a cut upload.
 * Experts are promised if the adapter has any: PEFT with transformers 5 adapts
 * none by target_modules.  -1 with 'err' set (EX_DATAERR), as peft_pair().
 */
int peft_warn(struct peft *p, const struct stdir *tensors,
              const struct stdir *base, const bool *used, const char *under,
              struct err *err);

/* peft_enter() replaces the path of a directory that moe-sft's train wrote,
 * which is not PEFT's, by that of its adapter, DIR/lora.safetensors; and PEFT's
 * DIR/adapter_model.safetensors by DIR. */
void peft_enter(char **path);

#endif
