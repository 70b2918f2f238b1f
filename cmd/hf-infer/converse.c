/* SPDX-License-Identifier: ISC */
/*
 * --chat on a terminal: a conversation.  Each turn renders all messages by the
 * template, so that an answer is the one that --messages would get for them;
 * what the new ids begin with as the last ones did is in the cache already.
 */
#include "cmd/hf-infer/sequence.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/lines.h"
#include "cmd/hf-infer/messages.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

#define THINK     "<think>"
#define THINK_END "</think>"
#define STOPPED   "stopped" /* by Ctrl-C: why an answer ends */
#define DIM       "\033[2m"
#define DIM_END   "\033[22m"

/* What of an answer is thinking: it may only begin with it. */
enum thinking { MAY_THINK, THINKS, SPEAKS };

struct conversation {
    struct run *run;
    json_t *vars;      /* what the template gets */
    json_t *messages;  /* of these */
    json_t *system;    /* --system, or NULL */
    struct ids cached; /* [session->n] */
    size_t n_prompt;   /* of them, tokens that came as a prompt */
    uint64_t n_answers;

    /* an answer */
    enum thinking thinking;
    struct str said, shown; /* all of its text; what is not shown yet */
    char last;              /* byte that was shown */
};

static void
add_message(struct conversation *c, const char *role, json_t *text)
{
    json_array_append_new(
        c->messages, json_pack("{s:s, s:o}", "role", role, "content", text));
}

/* ---- an answer as it comes ---- */

static int
put(struct conversation *c, size_t n, bool dim, struct err *err)
{
    struct str part = { 0 };
    struct out *out = c->run->out;
    int rc = 0;

    if (n == 0)
        return 0;
    str_add(&part, c->shown.s, n);
    c->last = c->shown.s[n - 1];
    c->shown.n -= n;
    memmove(c->shown.s, c->shown.s + n, c->shown.n);
    /* each piece by itself: whenever it ends, the terminal is as it was */
    if (dim)
        rc = out_write(out, DIM, sizeof(DIM) - 1, err);
    if (rc == 0)
        rc = print_text(c->run, &part, err);
    if (rc == 0 && dim)
        rc = out_write(out, DIM_END, sizeof(DIM_END) - 1, err);
    str_free(&part);
    return rc < 0 ? -1 : out_flush(out, err);
}

/* Shows what is certain of c->shown, or with 'all' the rest: thinking is dim,
 * from one tag to the other, either of which may come in pieces. */
static int
show(struct conversation *c, bool all, struct err *err)
{
    bool dim = c->thinking == THINKS, is_tag;
    const char *s = c->shown.s, *tag = dim ? THINK_END : THINK;
    size_t n = 0, n_tag = strlen(tag), left = c->shown.n;

    if (c->thinking == SPEAKS)
        return put(c, left, false, err);
    while (left > 0 && (dim ? memcmp(s + n, tag, smaller(n_tag, left)) != 0
                            : s[n] == ' ' || s[n] == '\n')) {
        n++;
        left--;
    }
    is_tag = left > 0 && memcmp(s + n, tag, smaller(n_tag, left)) == 0;
    if (left == 0 || (is_tag && left < n_tag)) /* it may become one */
        return put(c, all ? n + left : n, dim, err);
    c->thinking = is_tag && !dim ? THINKS : SPEAKS;
    if (dim && put(c, n + n_tag, true, err) < 0)
        return -1;
    return show(c, all, err);
}

/* Takes more text of the answer. */
static int
say(struct conversation *c, const char *text, size_t n, struct err *err)
{
    str_add(&c->said, text, n);
    str_add(&c->shown, text, n);
    return show(c, false, err);
}

/* ---- a turn ---- */

/* The ids of the conversation so far, whose prompt may have begun to think. */
static int
conversation_ids(struct conversation *c, struct ids *ids, struct err *err)
{
    struct rendered rendered = { 0 };
    int rc = messages_render(c->run, NULL, c->vars, &rendered, err);
    size_t n = rendered.text.n, n_tag = sizeof(THINK) - 1;

    json_object_del(c->vars, "add_generation_prompt"); /* it was added */
    while (n > 0 && strchr(" \n", rendered.text.s[n - 1]))
        n--;
    c->thinking =
        !tty_has_color() ? SPEAKS
        : n >= n_tag && !memcmp(rendered.text.s + n - n_tag, THINK, n_tag)
            ? THINKS
            : MAY_THINK;
    if (rc == 0)
        rc = chat_encode(c->run->tok, &rendered, NULL, 0, 0, ids, err);
    rendered_free(&rendered);
    return rc;
}

/* Takes from the cache what the ids begin with, as far as it goes, and feeds
 * the rest: at least one, for its logits.  1: Ctrl-C. */
static int
feed_rest(struct conversation *c, const struct sequence *seq, float *logits,
          struct err *err)
{
    struct run *run = c->run;
    struct session *old = run->session;
    size_t max_tokens = sequence_positions(seq), n = 0, k;
    const struct ids *ids = &seq->ids;

    while (n + 1 < ids->n && n < c->cached.n && ids->id[n] == c->cached.id[n])
        n++;
    /* where a generated token's bits are not those of a prompt's */
    if (run->arithmetic.compute == COMPUTE_BF16 ||
        run->saes.at.where != STEER_ALL)
        n = smaller(n, c->n_prompt);
    n = old && session_may_fork(old, max_tokens) ? session_reach(old, n) : 0;
    if (run->session_file && n < c->cached.n && !run->quiet)
        tool_say("%s: the conversation begins with %zu of its %zu tokens",
                 run->session_file, n, c->cached.n);
    run->session_file = NULL; /* of the first answer alone */
    run->session = n ? session_fork(old, n, max_tokens)
                     : session_new(run->engine, max_tokens);
    session_close(old);
    if (run->verbose)
        tool_say("prompt %zu token%s, %zu of them cached", ids->n,
                 plural(ids->n), n);
    session_keep(run->session, ids->n); /* the next prompt may begin so */
    for (; n < ids->n; n += k) {
        if (lines_stopped())
            return 1;
        k = smaller(ids->n - n, (size_t)run->chunk);
        if (session_feed(run->session, ids->id + n, k, logits, n + k == ids->n,
                         err) < 0)
            return -1;
    }
    return 0;
}

/* Generates until the answer or Ctrl-C ends it. */
static int
generate(struct conversation *c, struct sequence *seq, float *logits,
         struct err *err)
{
    struct run *run = c->run;
    struct sample *sample = sample_new((size_t)run->config->vocab_size);
    int rc = feed_rest(c, seq, logits, err);

    while (rc == 0) {
        struct feed feed = {
            .session = run->session, .n = 1, .n_logits = 1, .generated = true
        };
        const char *name = NULL;
        size_t before = seq->ids.n, n;

        rc = lines_stopped() ? sequence_end(seq, STOPPED, err)
                             : sequence_next(seq, sample, logits, err);
        feed.ids = seq->ids.id + seq->ids.n - 1;
        /* tags may be special tokens, which the text is without */
        if (seq->ids.n > before && tok_is_special(run->tok, *feed.ids))
            name = tok_text(run->tok, *feed.ids, &n);
        if (rc == 0 && name &&
            (!strcmp(name, THINK) || !strcmp(name, THINK_END)))
            rc = say(c, name, n, err);
        if (rc == 0 && seq->text.n > 0)
            rc = say(c, seq->text.s, seq->text.n, err);
        str_clear(&seq->text);
        if (rc < 0 || seq->finish_reason)
            break;
        rc = engine_feed(run->engine, &feed, 1, NULL, logits, err);
    }
    sample_free(sample);
    return rc < 0 ? -1 : show(c, true, err);
}

/*
 * Answers the last message.  0, and the answer is a message, too, or after
 * Ctrl-C what there is of it; if that is nothing, or the context is full, or
 * after -1 with 'err' set, the message is taken back.
 */
static int
answer(struct conversation *c, struct err *err)
{
    struct run *run = c->run;
    struct sequence seq = { 0 };
    int64_t room, asked = run->max_tokens;
    float *logits = NULL;
    const char *end;
    bool full, said;
    int rc = conversation_ids(c, &seq.ids, err);

    sequence_init(&seq, run, "the conversation");
    seq.sampler.sequence = c->n_answers;
    room = run->config->max_positions - (int64_t)seq.ids.n;
    full = rc == 0 && room <= 0;
    if (rc == 0 && !full) {
        /* answers are whole unless -n or the model's own setting cuts them */
        if (asked < 0 && run->config->max_new_tokens)
            asked = run->config->max_new_tokens;
        seq.asked = asked < 0 || asked > room ? room : asked;
        rc = sequence_plan(&seq, err);
        seq.to_context = seq.asked == room && asked != room;
    }
    if (rc == 0 && !full) {
        str_clear(&c->said);
        str_clear(&c->shown);
        c->last = '\n';
        logits = xcalloc((size_t)run->config->vocab_size, sizeof(*logits));
        rc = generate(c, &seq, logits, err);
        free(logits);
        /* with Ctrl-C, whose ^C is on the line, a terminal drops what it has
         * not shown yet: the end of what was dim, too */
        end = lines_stopped() && tty_has_color()   ? DIM_END "\n"
              : lines_stopped() || c->last != '\n' ? "\n"
                                                   : "";
        if (out_write(run->out, end, strlen(end), err) < 0)
            rc = -1;
        if (out_flush(run->out, err) < 0)
            rc = -1;
        full = seq.finish_reason && !strcmp(seq.finish_reason, "context");
        c->n_prompt = smaller(seq.n_prompt, run->session->n);
        ids_free(&c->cached);
        c->cached = seq.ids;
        c->cached.n = run->session->n;
        seq.ids = (struct ids){ 0 };
    }
    if (full)
        tool_say("the context of %lld token%s is full: /reset begins a new "
                 "conversation, /save FILE keeps this one",
                 (long long)run->config->max_positions,
                 plural(run->config->max_positions));
    said = seq.finish_reason &&
           (c->said.n > 0 || strcmp(seq.finish_reason, STOPPED) != 0);
    if (rc == 0 && said) {
        add_message(c, "assistant",
                    json_stringn(c->said.s ? c->said.s : "", c->said.n));
        c->n_answers++;
    } else {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
    sequence_free(&seq);
    return rc;
}

/* ---- what is typed ---- */

static void
reset(struct conversation *c)
{
    json_array_clear(c->messages);
    if (c->system)
        add_message(c, "system", json_incref(c->system));
}

/* /save [-f] FILE: what --messages reads, variables of the template included.
 */
static int
save(const struct conversation *c, const char *path, struct err *err)
{
    int flags = 0;
    struct str text = { 0 };
    char *json;
    int rc;

    if (strncmp(path, "-f ", 3) == 0) {
        flags |= OUT_FORCE;
        path += 3 + strspn(path + 3, " ");
    }
    if (!*path || strcmp(path, "-") == 0)
        return err_set(err, TU_USAGE, "/save needs the name of a file");
    json = json_dumps(c->vars, JSON_INDENT(1));
    str_addf(&text, "%s\n", json);
    rc = out_put(path, flags, text.s, text.n, err);
    str_free(&text);
    free(json);
    if (rc == 0)
        tool_say("%s: %zu message%s", path, json_array_size(c->messages),
                 plural(json_array_size(c->messages)));
    return rc;
}

/* Does what a line that begins with '/' asks for: 1, 0 after /quit, or -1 with
 * 'err' set. */
static int
command(struct conversation *c, const struct str *line, struct err *err)
{
    static const char help[] =
        "/reset            begin a new conversation\n"
        "/save [-f] FILE   write this one, for --messages; -f: replace FILE\n"
        "/quit             leave, as Ctrl-D does\n"
        "/help             print this\n"
        "A line that ends with \\ continues on the next one, // begins a "
        "message with /,\n"
        "Ctrl-C stops an answer.\n";
    static const char *const names[] = { "/reset", "/save", "/quit", "/help" };
    size_t n = strcspn(line->s, " "), which = 0;
    const char *rest = line->s + n + strspn(line->s + n, " ");

    while (which < 4 &&
           (strlen(names[which]) != n || memcmp(line->s, names[which], n) != 0))
        which++;
    if (which == 4)
        return err_set(err, TU_USAGE,
                       "%.*s is not known: /help lists what is, // begins a "
                       "message with /",
                       (int)smaller(n, 80), line->s);
    if (which == 1)
        return save(c, rest, err) < 0 ? -1 : 1;
    if (*rest)
        return err_set(err, TU_USAGE, "%s takes nothing", names[which]);
    if (which == 0)
        reset(c);
    if (which == 3 && (out_write(c->run->out, help, strlen(help), err) < 0 ||
                       out_flush(c->run->out, err) < 0))
        return -1;
    return which != 2;
}

/* Reads lines until one is the last of a message: 1, or 0 at the end. */
static int
read_message(struct str *message)
{
    struct str line = { 0 };
    bool more = true, warned = false;
    int rc = 1;

    str_clear(message);
    while (more) {
        rc = lines_next(message->n ? "  " : "> ", &line);
        if (rc == LINES_STOPPED) {
            if (warned && line.n + message->n == 0)
                break;
            warned = line.n + message->n == 0;
            if (warned)
                tool_say("Ctrl-C again, Ctrl-D or /quit leaves");
            str_clear(message);
            continue;
        }
        warned = false;
        more = rc == 1 && line.n > 0 && line.s[line.n - 1] == '\\';
        str_add(message, line.n ? line.s : "", line.n - more);
        if (more)
            str_addc(message, '\n');
    }
    str_free(&line);
    return rc == 1 || (rc == 0 && message->n > 0);
}

/* Whatever goes wrong is said, and the conversation goes on. */
static void
converse(struct conversation *c)
{
    struct str message = { 0 };
    json_t *text;
    struct err err;
    int rc = 1;

    while (rc != 0 && read_message(&message)) {
        size_t skip = message.s[0] == '/' && message.s[1] == '/';

        if (strspn(message.s, " \t\n") == message.n)
            continue;
        if (message.s[0] == '/' && !skip) {
            rc = command(c, &message, &err);
        } else {
            text = chat_text("standard input", message.s + skip,
                             message.n - skip, c->run->strict_utf8, &err);
            if (text)
                add_message(c, "user", text);
            rc = !text || answer(c, &err) < 0 ? -1 : 1;
        }
        if (rc < 0)
            tool_say("%s", err.what);
    }
    str_free(&message);
}

/* What the template gets before there is a message, and what is cached. */
static int
begin(struct conversation *c, struct err *err)
{
    const char *system = c->run->system;

    c->vars = json_pack("{s:[]}", "messages");
    c->messages = json_object_get(c->vars, "messages");
    json_object_update_missing(c->vars, c->run->variables);
    if (system && !(c->system = chat_text("--system", system, strlen(system),
                                          c->run->strict_utf8, err)))
        return -1;
    c->run->system = NULL; /* it is a message now */
    reset(c);
    if ((c->run->session = c->run->prefix)) {
        c->n_prompt = c->run->prefix->n;
        for (size_t i = 0; i < c->n_prompt; i++)
            ids_add(&c->cached, c->run->prefix_ids[i]);
        c->run->prefix = NULL;
    }
    return 0;
}

int
run_converse(struct run *run, struct err *err)
{
    struct conversation c = { .run = run };
    int rc;

    if (run_open_tok(run, err) < 0 || run_open_model(run, err) < 0)
        return -1;
    rc = run_open_engine(
        run, smaller((size_t)run->chunk, (size_t)run->config->max_positions),
        err);
    if (rc == 0)
        rc = begin(&c, err);
    if (rc == 0) {
        lines_open();
        if (!run->quiet)
            tool_say("/help says what can be typed besides messages");
        converse(&c);
        lines_close();
    }
    json_decref(c.vars);
    json_decref(c.system);
    ids_free(&c.cached);
    str_free(&c.said);
    str_free(&c.shown);
    return rc;
}
