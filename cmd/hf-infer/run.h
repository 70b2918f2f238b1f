/* SPDX-License-Identifier: ISC */
/*
 * What the modes of hf-infer share: options, the open model, the output.
 */
#ifndef HF_INFER_RUN_H
#define HF_INFER_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmd/hf-infer/sample.h"
#include "cmd/hf-infer/stop.h"
#include "core/model/config.h"
#include "core/model/engine.h"
#include "core/model/splice.h"
#include "core/model/tables.h"
#include "core/opt_value.h"
#include "core/out.h"
#include "core/text/tok.h"

#define LOGPROBS_MAX 20 /* alternatives: as OpenAI's top_logprobs */

enum mode {
    MODE_GENERATE,
    MODE_LOGITS,
    MODE_NLL,
    MODE_TOP,
    MODE_ACTS,
    MODE_ENCODE,
    MODE_DECODE,
    MODE_LUT_AUTO,
    MODE_PLACES,
    MODE_PPL,
    MODE_FAMILIES,
    MODE_RENDER,
    MODE_IMAGES /* --images, with --acts or without */
};

struct run {
    const char *dir; /* the model */
    enum mode mode;

    /* the prompt: one of the first three, or standard input */
    const char *prompt, *prompt_file, *ids_text;
    int said; /* of tok_warn_added() */
    bool prepend_bos;
    bool said_bos;     /* that an SAE expects it */
    bool raw;          /* add no special tokens to the prompt */
    bool plain;        /* text that spells a special token is text */
    bool special;      /* --encode adds special tokens */
    bool skip_special; /* --decode leaves special tokens out */
    bool strict_utf8;
    bool as_text; /* JSON objects are text, too */
    bool chat;
    const char *template;          /* of --chat: FILE or NAME; NULL: its own */
    struct opt_list template_vars; /* --template-var NAME=VALUE */
    const char *messages;          /* FILE.json, which prompt_file is, too */
    const char *system;
    bool converses; /* --chat on a terminal, without a prompt */

    /* generation */
    int64_t max_tokens; /* -1: to the end of the context */
    struct sampler sampler;
    unsigned sampler_set; /* bit of each field that the user gave */
    struct stop stop;
    int64_t n_best; /* --logprobs, -1: not given */
    bool ids_out;
    bool raw_text; /* as it is on a terminal, too */
    bool jsonl;    /* many prompts, of which */
    int64_t batch; /* so many at once; 0, of images: as many as are fast */
    bool skip_bad; /* a wrong line is reported, and no more */
    bool resume;   /* after the answers of -o's FILE.partial */

    const char *acts, *acts_meta, *acts_ids; /* options of these names */
    const char *images, *features, *pixels, *acts_images; /* of these names */
    bool no_cls, exif, hash_images;
    size_t image_height, image_width; /* --image-size; 0: not given */
    int64_t max_pixels;               /* of an image */
    int64_t ctx;                      /* tokens of a window; 0: as they come */
    bool pad;                         /* a document a window */
    int64_t stride;                   /* of --nll's windows; 0: one window */

    int64_t top_k_logits; /* --top */
    const char *logits_path;
    const char *output;
    const char *session_file, *save_session; /* --session, --save-session */
    int out_flags;
    int64_t chunk; /* tokens that go through the layers together */
    struct engine_options arithmetic;
    struct opt_list lora;        /* --lora PATH,.. */
    const char *kvc;             /* --kvc FILE.bin */
    int64_t kvc_after;           /* --kvc-after N; 0: half of the text */
    struct splices_options saes; /* --sae, --steer, .. */
    const char *lut;             /* --lut DIR */
    struct tables_options table; /* --lut-layers, --ratio, .. */
    const char *lut_report;      /* --lut-report FILE */
    double lut_auto;             /* --lut-auto NATS */
    bool no_screen;              /* all pre-activations are exact */
    int n_threads;
    bool json, verbose, quiet;

    /* while it runs */
    struct model *model;
    const struct config *config; /* NULL without a model */
    struct tok *tok;             /* NULL until it is needed */
    struct chat *templates;      /* NULL until they are needed */
    json_t *variables;           /* of --template-var */
    json_t *unused;              /* members: variables that were warned of */
    struct par *par;
    struct engine *engine;
    struct session *session;
    struct session *prefix;        /* of --session, or NULL */
    int32_t *prefix_ids;           /* [prefix->n] */
    struct compressor *compressor; /* NULL without --kvc */
    struct tables *tables;         /* NULL without --lut */
    struct splices *splices;       /* NULL without --sae, --steer, .. */
    struct out *out;               /* where the answer goes */
    struct out *lut_out;           /* for --lut-report, until it is written */
};

/* Bits of sampler_set. */
enum {
    SET_TEMPERATURE = 1,
    SET_TOP_K = 2,
    SET_TOP_P = 4,
    SET_MIN_P = 8,
    SET_PENALTY = 16,
    SET_SEED = 32,
    SET_GREEDY = 64
};

/*
 * What a run needs, opened in this order: the tokenizer; the model with what
 * changes it; the engine for chunks of so many tokens, or with it a session of
 * n_tokens (EX_DATAERR: more than the model's context).
 * 0, or -1 with 'err' set, as all below.
 */
int run_open_tok(struct run *run, struct err *err);
int run_open_model(struct run *run, struct err *err);
int run_open_engine(struct run *run, size_t chunk, struct err *err);
int run_open_session(struct run *run, size_t n_tokens, struct err *err);
void run_close(struct run *run);

/*
 * outputs_open() opens the answer's file and --lut-report's.
 * outputs_close() writes that report and gives both their names, or removes
 * them if 'rc', of the mode, is -1: 0, or -1 with 'err' set.
 */
int outputs_open(struct run *run, struct err *err);
int outputs_close(struct run *run, int rc, struct err *err);

/* check_logits(): EX_DATAERR if one position's logits have a NaN or an
 * infinity, or are all minus infinity; 'where' begins the message, unless an
 * adapter's tensor is why. */
int check_logits(const struct run *run, const struct session *session,
                 const char *where, const float *logits, size_t n_tokens,
                 struct err *err);

/* feed_prompt() feeds ids to the empty session, but those that --session has,
 * and writes --save-session; 'last' gets the last one's logits. */
int feed_prompt(struct run *run, const int32_t *ids, size_t n, float *last,
                struct err *err);

/* rows_at_once() is for how many of n tokens to ask for logits in one call. */
size_t rows_at_once(const struct run *run, size_t n);

/* compress() is session_compress() where --kvc asks for it; -v says so. */
int compress(struct run *run, struct session *session, struct err *err);

/* print_text() writes a model's text: on a terminal made safe, but for
 * --raw-text. */
int print_text(const struct run *run, const struct str *text, struct err *err);

/* The modes. */
int run_generate(struct run *run, struct err *err);
int run_logits(struct run *run, struct err *err);
int run_nll(struct run *run, struct err *err);
int run_top(struct run *run, struct err *err);
int run_acts(struct run *run, struct err *err);
int run_images(struct run *run, struct err *err);
int run_encode(struct run *run, struct err *err);
int run_decode(struct run *run, struct err *err);
int run_render(struct run *run, struct err *err);
int run_lut_auto(struct run *run, struct err *err);
int run_places(struct run *run, struct err *err);
int run_families(struct run *run, struct err *err);

#endif
