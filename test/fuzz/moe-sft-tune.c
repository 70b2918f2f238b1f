/* SPDX-License-Identifier: ISC */
/*
 * Hostile lines of moe-sft tune's DATA, by the tokenizer of demo/qwen3-tiny:
 * the first byte selects template (the model's, one that leaves out earlier
 * reasoning, one with generation blocks), positions and --ctx.  What is read
 * are examples within these, one after another, with labels that are its ids or
 * any of the vocabulary, and windows that have each of them once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/moe-sft/tune_data.h"
#include "cmd/moe-sft/tune_pack.h"
#include "core/mem.h"
#include "core/model/train/lm.h"
#include "test/fuzz/must.h"

#define MODEL "demo/qwen3-tiny"

enum { VOCAB = 1024 };

static const char thinks[] =
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}"
    "{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}{%- for m in messages %}{%- set c = m.content | string %}"
    "{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>' + c.split('</think>')[0].split('<think>')[-1] }}"
    "{{- '</think>' }}{%- endif %}{{- c.split('</think>')[-1] | trim }}"
    "{%- for t in m.tool_calls or [] %}{{- t | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- endif %}";
static const char marked[] =
    "{{ tools | tojson }}{% for m in messages %}{{ m.role }}: "
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";

/* The name of a file that has a text. */
static const char *
template_path(const char *text, size_t nbytes)
{
    static char path[40];
    int fd = memfd_create("template", MFD_CLOEXEC);

    MUST(fd >= 0 && write(fd, text, nbytes) == (ssize_t)nbytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

/* Returns how many labels are targets. */
static size_t
check_examples(const struct tune_data *d, size_t ctx, size_t most)
{
    size_t at = 0, n_targets = 0, line = 0;

    MUST(d->n > 0 && d->ids.n == d->labels.n && d->longest <= most);
    for (size_t i = 0; i < d->n; i++) {
        const struct tune_example *e = &d->examples[i];

        MUST(e->first == at && e->n > 0 && e->n <= ctx && e->n <= d->longest);
        MUST(e->line > line);
        MUST(d->labels.id[at] == LM_NO_LABEL);
        line = e->line;
        at += e->n;
    }
    MUST(at == d->ids.n);
    for (size_t i = 0; i < at; i++) {
        MUST(d->ids.id[i] >= 0 && d->ids.id[i] < VOCAB);
        MUST(d->labels.id[i] == LM_NO_LABEL ||
             (d->labels.id[i] >= 0 && d->labels.id[i] < VOCAB));
        n_targets += d->labels.id[i] != LM_NO_LABEL;
    }
    return n_targets;
}

static void
check_windows(const struct tune_data *d, size_t ctx, bool pack)
{
    char *seen = xcalloc(d->n, 1);
    struct tune_windows w;
    size_t n = 0;

    tune_windows_open(&w, d, ctx, pack);
    MUST(w.n > 0 && w.n <= d->n && w.first[w.n] == d->n);
    MUST(lm_n_targets(w.seqs, w.n) == d->n_targets);
    for (size_t i = 0; i < w.n; i++) {
        MUST(w.seqs[i].n <= ctx && w.first[i] < w.first[i + 1]);
        n += w.seqs[i].n;
    }
    for (size_t i = 0; i < d->n; i++) {
        MUST(w.order[i] < d->n && !seen[w.order[i]]);
        seen[w.order[i]] = 1;
    }
    MUST(n == d->ids.n);
    tune_windows_close(&w);
    free(seen);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *tok;
    static char with_thoughts[40], with_blocks[40];
    int how = size ? *data : 0, fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct config config = { .vocab_size = VOCAB,
                             .max_positions = how & 4 ? 16 : 512,
                             .n_eos = 1,
                             .eos = { 1023 } };
    struct tune_text text = { .dir = MODEL,
                              .config = &config,
                              .template = how & 1   ? with_thoughts
                                          : how & 2 ? with_blocks
                                                    : NULL,
                              .tok = tok,
                              .eos = 1023 };
    size_t ctx = how & 8 ? 5 : how & 16 ? 40 : 1 << 20;
    struct err err = { 0 };
    struct tune_data d;
    char path[40];

    if (!*with_blocks) {
        strcpy(with_thoughts, template_path(thinks, strlen(thinks)));
        strcpy(with_blocks, template_path(marked, strlen(marked)));
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    MUST(fd >= 0 &&
         write(fd, data + !!size, size - !!size) == (ssize_t)(size - !!size));
    if (tune_data_open(&d, path, &text, ctx, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what && strlen(err.what) < 4096);
    } else {
        MUST(check_examples(&d, ctx, (size_t)config.max_positions) ==
             d.n_targets);
        check_windows(&d, ctx, false);
        check_windows(&d, ctx, true);
    }
    tune_data_close(&d);
    chat_close(text.chat);
    tok = text.tok; /* the next input's, too */
    close(fd);
    return 0;
}
