/* SPDX-License-Identifier: ISC */
/*
 * Rendered conversations to ids.  Expected is written by hand: a special token
 * in braces, another one of several characters in brackets.
 */
#include "core/text/chat.h"

#include <unistd.h>

#include "core/hash.h"
#include "test/unit/tap.h"
#include "test/unit/tok.h"

#define TOKEN(content, more) "{\"id\":%d,\"content\":\"" content "\"," more "}"
#define SPECIAL(content)     TOKEN(content, "\"special\":true,\"normalized\":false")
#define ALIKE(content)       TOKEN(content, "\"special\":true,\"normalized\":true")

/* A tokenizer of characters, of "xy", and of these added tokens. */
static struct tok *
make_tok(const char *parts, const char *const *added)
{
    struct str json = { 0 };
    struct err err = { 0 };
    struct tok *tok = NULL;
    int id = 0;

    str_addf(&json,
             "{%s\"model\":{\"type\":\"BPE\",\"merges\":[\"x y\"],\"vocab\":{",
             parts);
    for (char c = ' '; c <= '~'; c++) {
        str_addc(&json, id ? ',' : ' ');
        js_put_str(&json, &c, 1);
        str_addf(&json, ":%d", id++);
    }
    str_addf(&json, ",\"\\n\":%d,\"" M "\":%d,\"xy\":%d}},\"added_tokens\":[",
             id, id + 1, id + 2);
    id += 3;
    for (int i = 0; added[i]; i++, id++) {
        const char *mark = strstr(added[i], "%d");

        str_addf(&json, "%s%.*s%d%s", i ? "," : "", (int)(mark - added[i]),
                 added[i], id, mark + 2);
    }
    str_adds(&json, "]}");
    if (tok_parse(&tok, json.s, json.n, "t", &err) < 0)
        printf("# %s\n", err.what);
    str_free(&json);
    return tok;
}

/* A text in which what somebody wrote stands between tildes, and turns between
 * carets. */
static size_t
make_rendered(struct rendered *r, struct chat_turn *turns, const char *text)
{
    static struct rendered_run runs[32];
    size_t n_marks = 0;
    uint32_t of = 0;

    *r = (struct rendered){ .runs = runs };
    for (; *text; text++) {
        if (*text == '^') {
            *(n_marks % 2 ? &turns[n_marks / 2].end
                          : &turns[n_marks / 2].begin) = r->text.n;
            n_marks++;
        } else if (*text == '~') {
            runs[r->n_runs++] = (struct rendered_run){ r->text.n, of };
            of = of ? 0 : 1;
        } else {
            str_addc(&r->text, *text);
        }
    }
    runs[r->n_runs++] = (struct rendered_run){ r->text.n, of };
    return n_marks / 2;
}

static void
gives(const struct tok *tok, const char *name, const char *text,
      const char *want)
{
    struct chat_turn turns[4] = { 0 };
    struct rendered rendered;
    struct str got = { 0 };
    struct ids ids = { 0 };
    struct err err = { 0 };
    size_t n_turns = make_rendered(&rendered, turns, text);
    int rc;

    ids_add(&ids, 0); /* of a text before it */
    rc = chat_encode(tok, &rendered, turns, n_turns, 0, &ids, &err);
    for (size_t i = 1; i <= ids.n && rc == 0; i++) {
        size_t n = 0;
        const char *s = i < ids.n ? tok_text(tok, ids.id[i], &n) : NULL;
        bool special = i < ids.n && tok_is_special(tok, ids.id[i]);
        bool is_long = n > 1 && *s > 0;

        for (size_t k = 0; k < n_turns; k++) {
            str_adds(&got, turns[k].first_id == i ? "^" : "");
            str_adds(&got, turns[k].end_id == i ? "^" : "");
        }
        str_adds(&got, special ? "{" : is_long ? "[" : "");
        str_add(&got, s ? s : "", n);
        str_adds(&got, special ? "}" : is_long ? "]" : "");
    }
    if (rc < 0)
        str_addf(&got, "%d %s", err.status, err.what);
    if (!tap_ok(same_text(&got, want, strlen(want)), "chat: %s", name))
        printf("# %s\n", got.n ? got.s : "nothing");
    str_free(&got);
    str_free(&rendered.text);
    ids_free(&ids);
}

static void
test_special(void)
{
    struct tok *tok = make_tok(
        "",
        WORDS(SPECIAL("<|im_start|>"), SPECIAL("<|im_end|>"), SPECIAL("b<|im"),
              TOKEN("<think>", "\"special\":false,\"normalized\":false"),
              TOKEN("<l>", "\"special\":true,\"normalized\":false,"
                           "\"lstrip\":true"),
              TOKEN("<r>", "\"special\":true,\"normalized\":false,"
                           "\"rstrip\":true")));

    gives(tok, "a special token that a message spells is text",
          "<|im_start|>~user~\n~Hi <|im_end|>~<|im_end|>\n",
          "{<|im_start|>}user\nHi <|im_end|>{<|im_end|>}\n");
    gives(tok, "one that the template makes of a role is one",
          "<|~im_start~|>~Hi~<|~im_end~|>", "{<|im_start|>}Hi{<|im_end|>}");
    gives(tok, "one that begins or ends in a message is text",
          "~<|im_~end|>, <|im_~end|>~", "<|im_end|>, <|im_end|>");
    gives(tok, "one that begins in a message leaves the template's after it",
          "~ab~<|im_end|>", "ab{<|im_end|>}");
    gives(tok, "an added token that is not special is one in a message, too",
          "~<think>~<think>", "[<think>][<think>]");
    gives(tok, "white space next to the template's token may be a message's",
          "<r>~  a  ~<l>~  <r>  <l>~", "{<r>}a{<l>}  <r>  <l>");
    gives(tok, "nothing", "", "");
    tok_close(tok);
}

/* Some vocabularies have the names of special tokens. */
static void
test_vocabulary(void)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,\"vocab\":{\"<\":"
        "0,\"/\":1,\"s\":2,\">\":3,\"</\":4,\"s>\":5,\"</s>\":6,\"ss\":7},"
        "\"merges\":[\"< /\",\"s >\",\"</ s>\",\"s s\"]},\"added_tokens\":["
        "{\"id\":6,\"content\":\"</s>\",\"special\":true,\"normalized\":"
        "false}]}";

    for (int i = 0; i < 2; i++) {
        struct str s = { 0 };
        struct err err;
        struct tok *tok = NULL;

        str_addf(&s, json, i ? "true" : "false");
        tok_parse(&tok, s.s, s.n, "t", &err);
        gives(tok,
              i ? "a vocabulary's special token is text in a message"
                : "so is one that merges make",
              "~</s>~</s>~ss~", "</s>{</s>}[ss]");
        tok_close(tok);
        str_free(&s);
    }
}

#define RULE(from, to)                                            \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" from "\"}," \
    "\"content\":\"" to "\"}"

static void
test_normalized(void)
{
    struct tok *lower = make_tok(
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" RULE(
            "(?i)end", "end") "," RULE("A", "a") "," RULE("C", "c") "]},",
        WORDS(ALIKE("<END>")));
    struct tok *sp = make_tok(
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
        "\"Prepend\",\"prepend\":\"" M "\"},{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\" \"},\"content\":\"" M "\"}]},",
        WORDS(ALIKE("[E]")));
    struct tok *nfc =
        make_tok("\"normalizer\":{\"type\":\"NFC\"},", WORDS(ALIKE("<END>")));

    gives(lower, "a token that is searched in normalized text",
          "A<END>~A<END>~<End>~C~", "a{<END>}a<end>{<END>}c");
    gives(sp, "Prepend is done once", "[E] ~hi [E]~ [E]~a~",
          "{[E]}" M "hi" M "[E]{[E]}a");
    gives(nfc, "a normalizer that joins a message with the template is refused",
          "a~\xcc\x81<END>~",
          "65 t: its normalizer joins what a message says with the template's "
          "text around it: special tokens in it cannot be told from the "
          "template's");
    gives(nfc, "and else used", "a<END>~b<END>~", "a{<END>}b<END>");
    tok_close(lower);
    tok_close(sp);
    tok_close(nfc);
}

static void
test_turns(void)
{
    struct tok *tok = make_tok("", WORDS(SPECIAL("<|e|>")));

    gives(tok, "a text is encoded whole", "x~y~xy", "[xy][xy]");
    gives(tok, "but is cut where a turn begins", "ax^~y~<|e|>^\n",
          "ax^y{<|e|>}^\n");
    gives(tok, "and ends", "^~x~^yxy^^", "^x^y[xy]^^");
    gives(tok, "two turns", "u^~a~<|e|>^u^~xy~<|e|>^",
          "u^a{<|e|>}^u^[xy]{<|e|>}^");
    tok_close(tok);
}

/* The variables of an object, or the error. */
static void
vars(const char *name, const char *json, const char *want)
{
    static const char *const settings[] = { "id", "seed", NULL };
    struct err err = { 0 };
    json_t *v = json_loads(json, 0, NULL), *got;
    struct js root = js_root(v, "f");
    char *text = NULL;

    got = chat_vars(&root, settings, &err);
    if (got)
        text = json_dumps(got, JSON_COMPACT);
    if (!tap_ok(!strcmp(text ? text : err.what, want) &&
                    err.status == (text ? 0 : EX_DATAERR),
                "chat: %s", name))
        printf("# %s\n", text ? text : err.what);
    free(text);
    json_decref(got);
    json_decref(v);
}

static void
test_vars(void)
{
    vars("variables are all but settings",
         "{\"id\":1,\"messages\":[{}],\"seed\":2,\"tools\":[{}],"
         "\"chat_template_kwargs\":{\"k\":false}}",
         "{\"messages\":[{}],\"tools\":[{}],\"k\":false}");
    vars("no messages", "{\"id\":1}",
         "f: messages is missing (expected an array of messages)");
    vars("a message that is none", "{\"messages\":[{},\"Hi\"]}",
         "f: messages[1] is \"Hi\" (expected a message, an object)");
    vars("tools in a string", "{\"messages\":[],\"tools\":\"[{}]\"}",
         "f: tools is \"[{}]\" (expected an array of objects)");
    vars("a tool that is none",
         "{\"messages\":[],\"chat_template_kwargs\":{\"tools\":[{},1]}}",
         "f: tools[1] is 1 (expected a tool, an object)");
    vars("a document that is none", "{\"messages\":[],\"documents\":[\"d\"]}",
         "f: documents[0] is \"d\" (expected a document, an object)");
    vars("chat_template_kwargs that are none",
         "{\"messages\":[],\"chat_template_kwargs\":[]}",
         "f: chat_template_kwargs is an empty array (expected an object)");
    vars("a variable in two places",
         "{\"messages\":[],\"a\":1,\"chat_template_kwargs\":{\"a\":1}}",
         "f: \"a\" stands in chat_template_kwargs and next to it");
}

static void
set_var(const char *arg, const char *want)
{
    json_t *v = json_pack("{s:i}", "a", 1);
    struct err err = { 0 };
    char *text = NULL;

    if (chat_set_var(v, arg, true, &err) == 0)
        text = json_dumps(v, JSON_COMPACT);
    if (!tap_ok(!strcmp(text ? text : err.what, want), "chat_set_var: %s",
                want))
        printf("# %s\n", text ? text : err.what);
    free(text);
    json_decref(v);
}

static void
test_set_var(void)
{
    set_var("b=false", "{\"a\":1,\"b\":false}");
    set_var("b=[\"x=\"]", "{\"a\":1,\"b\":[\"x=\"]}");
    set_var("b=false x", "{\"a\":1,\"b\":\"false x\"}");
    set_var("b=", "{\"a\":1,\"b\":\"\"}");
    set_var("b", "--template-var: \"b\" is not NAME=VALUE");
    set_var("=b", "--template-var: \"=b\" is not NAME=VALUE");
    set_var("a=2", "--template-var a: is given twice");
    set_var("tools=[{}]", "{\"a\":1,\"tools\":[{}]}");
    set_var("documents=x", "--template-var: documents is \"x\" (expected an "
                           "array of objects)");
    set_var("b=\xff", "--template-var: byte 0 (0xff) is not UTF-8");
}

/* Of a directory with such a template and such an eos. */
static void
digest(const char *template, const char *eos, char hex[HASH_MAX_HEX])
{
    char dir[] = "/tmp/tensorutils-unit.XXXXXX", name[64];
    struct chat *chat = NULL;
    struct err err = { 0 };
    FILE *f = NULL;

    if (mkdtemp(dir)) {
        snprintf(name, sizeof(name), "%s/tokenizer_config.json", dir);
        f = fopen(name, "w");
    }
    if (f) {
        fprintf(f, "{\"chat_template\":\"%s\",\"eos_token\":\"%s\"}", template,
                eos);
        fclose(f);
    }
    tap_ok(chat_open(&chat, dir, NULL, &err) == 0, "chat_open: %s %s", template,
           err.what);
    if (chat)
        strcpy(hex, chat_digest(chat));
    chat_close(chat);
    unlink(name);
    rmdir(dir);
}

static void
test_digest(void)
{
    char a[HASH_MAX_HEX] = "", b[HASH_MAX_HEX] = "";

    digest("x", "y", a);
    digest("x", "y", b);
    tap_ok(*a && !strcmp(a, b), "chat_digest: the same of the same template");
    digest("x ", "y", b);
    tap_ok(strcmp(a, b) != 0, "chat_digest: another of another template");
    digest("x", "z", b);
    tap_ok(strcmp(a, b) != 0, "chat_digest: another of another eos_token");
}

int
main(void)
{
    test_set_var();
    test_digest();
    test_special();
    test_vocabulary();
    test_normalized();
    test_turns();
    test_vars();
    return tap_done();
}
