/* SPDX-License-Identifier: ISC */
#include "core/format/peft.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

/* Of rank_pattern and alpha_pattern each.  A regex takes less than a kilobyte
 * compiled. */
#define MAX_PATTERNS 65536
#define MAX_REGEXES  4096
#define MAX_NBYTES   ((size_t)16 << 20)

#define MAX_TAILS 64 /* dots in a module's name */
#define MAX_WORDS 64 /* of layers_pattern */

#define SHOWN 80 /* bytes of a pattern, in messages */

#define EXCLUDED "exclude_modules has"

struct peft_pattern {
    const char *text;
    struct regex *regex; /* NULL: it is a name */
    double value;        /* a rank or an alpha */
    bool used;           /* for some module */
    struct js js;        /* for messages: value and place */
};

/* A pattern that is only a name. */
struct peft_name {
    char *text;
    size_t place; /* in the file */
};

/* Keys that would change numbers, unless they are false, empty or null. */
static const char *const refused[] = {
    "use_dora",
    "lora_bias",
    "use_qalora",
    "modules_to_save",
    "layer_replication",
    "arrow_config",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "use_bdlora",
    "megatron_config",
};

static bool
is_word(const struct js *js, const char *word)
{
    return js_is(js, JSON_STRING) && !strcmp(json_string_value(js->v), word);
}

static int
check_kind(const struct peft *p, struct err *err)
{
    struct js type = js_get(&p->config, "peft_type");
    struct js bias = js_get(&p->config, "bias");
    struct js start = js_get(&p->config, "init_lora_weights");
    struct js stacks = js_get(&p->config, "target_parameters");

    if (!is_word(&type, "LORA"))
        return js_bad(&type, "\"LORA\"", err);
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        struct js js = js_get(&p->config, refused[i]);

        if (!js_absent(&js) && !js_is(&js, JSON_FALSE) &&
            (!js_is(&js, JSON_ARRAY) || json_array_size(js.v)) &&
            (!js_is(&js, JSON_OBJECT) || json_object_size(js.v)))
            return js_bad(&js, "nothing: it is not supported", err);
    }
    if (!js_absent(&stacks) && !js_is(&stacks, JSON_ARRAY))
        return js_bad(&stacks, "an array of names", err);
    if (!js_absent(&bias) && !is_word(&bias, "none"))
        return js_bad(&bias, "\"none\"", err);
    /* PiSSA and the like take from the base's weights what the adapter has */
    if (!js_absent(&start) && !js_is(&start, JSON_TRUE) &&
        !js_is(&start, JSON_FALSE) && !is_word(&start, "gaussian") &&
        !is_word(&start, "eva") && !is_word(&start, "orthogonal"))
        return js_bad(&start, "one that leaves the base as it is", err);
    return 0;
}

/* ---- Patterns that are names ---- */

/* A pattern as a name: one of letters, digits, '_', '-', '.', and punctuation
 * after a backslash.  A '.' means itself: no two modules differ in what it
 * could mean in a regex.  NULL if it is none. */
static char *
read_name(const char *pattern)
{
    size_t n = 0;
    char *name = xcalloc(strlen(pattern) + 1, 1);

    for (const char *p = pattern; *p; p++) {
        bool escaped = *p == '\\' && p[1] && strchr("._-/ ", p[1]);
        bool plain = (*p >= '0' && *p <= '9') ||
                     ((*p | 32) >= 'a' && (*p | 32) <= 'z') ||
                     strchr("._-", *p);

        p += escaped;
        if (!escaped && !plain) {
            free(name);
            return NULL;
        }
        name[n++] = *p;
    }
    return name;
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct peft_name *)a)->text,
                  ((const struct peft_name *)b)->text);
}

static int
by_name_and_place(const void *a, const void *b)
{
    const struct peft_name *x = a, *y = b;
    int order = by_name(x, y);

    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Sorts names, and drops those that an earlier one in the file hides. */
static void
sort_names(struct peft_patterns *of)
{
    size_t n = 0;

    qsort(of->names, of->n_names, sizeof(*of->names), by_name_and_place);
    for (size_t i = 0; i < of->n_names; i++)
        if (n == 0 || by_name(&of->names[n - 1], &of->names[i]) != 0)
            of->names[n++] = of->names[i];
        else
            free(of->names[i].text);
    of->n_names = n;
}

/* The place of the first name in the file that is the module's, or its end
 * after a dot; SIZE_MAX: none is. */
static size_t
find_name(const struct peft_patterns *of, const char *module)
{
    size_t place = SIZE_MAX;

    for (const char *at = module; at && of->n_names; at = strchr(at, '.')) {
        struct peft_name key = { (char *)(uintptr_t)(at += *at == '.'), 0 };
        const struct peft_name *found =
            bsearch(&key, of->names, of->n_names, sizeof(*of->names), by_name);

        if (found)
            place = smaller(place, found->place);
    }
    return place;
}

/* ---- rank_pattern, alpha_pattern ---- */

/* Compiles what matches a module's name; 'tail': or an end of it after a dot.
 */
static int
compile(const struct js *of, const char *pattern, bool tail, struct regex **to,
        struct err *err)
{
    struct str s = { 0 }, where = { 0 };
    int rc;

    str_addf(&s, "^%s(?:%s)$", tail ? "(?:.*\\.)?" : "", pattern);
    str_addf(&where, "%s: %s: \"%.*s%s\"", of->file, of->path,
             (int)utf8_valid(s.s, smaller(s.n, SHOWN)), s.s,
             s.n > SHOWN ? "..." : "");
    rc = regex_compile(to, s.s, s.n, 0, where.s, err);
    str_free(&where);
    str_free(&s);
    return rc;
}

static int
read_patterns(const struct peft *p, const char *key, bool whole,
              struct peft_patterns *to, struct err *err)
{
    struct js js = js_get(&p->config, key);
    json_t *object = (json_t *)(uintptr_t)js.v; /* jansson's, not const */
    size_t n = json_object_size(js.v), nbytes = 0;
    int64_t rank = 0;

    if (js_absent(&js))
        return 0;
    if (!js_is(&js, JSON_OBJECT))
        return js_bad(&js, "an object", err);
    if (n > MAX_PATTERNS)
        return err_data(err, js.file, "%s has %zu patterns (at most %d)",
                        js.path, n, MAX_PATTERNS);
    to->list = xcalloc(n + 1, sizeof(*to->list));
    to->names = xcalloc(n + 1, sizeof(*to->names));
    to->regexes = xcalloc(n + 1, sizeof(*to->regexes));
    /* jansson iterates in the order of the file */
    for (void *it = json_object_iter(object); it;
         it = json_object_iter_next(object, it)) {
        struct peft_pattern *one = &to->list[to->n++];
        char *name;

        one->text = json_object_iter_key(it);
        one->js = js_get(&js, one->text);
        name = read_name(one->text);
        if (name)
            to->names[to->n_names++] = (struct peft_name){ name, to->n - 1 };
        else
            to->regexes[to->n_regexes++] = one;
        if (whole ? js_i64(&one->js, 1, INT32_MAX, &rank, err) < 0
                  : js_f64(&one->js, &one->value, err) < 0)
            return -1;
        if (whole)
            one->value = (double)rank;
    }
    sort_names(to);
    n = to->n_regexes;
    if (n > MAX_REGEXES)
        return err_data(err, js.file,
                        "%s has %zu patterns that are not names (at most %d)",
                        js.path, n, MAX_REGEXES);
    for (size_t i = 0; i < n; i++) {
        struct peft_pattern *one = to->regexes[i];

        if (compile(&js, one->text, true, &one->regex, err) < 0)
            return -1;
        nbytes += regex_nbytes(one->regex);
        if (nbytes > MAX_NBYTES)
            return err_data(err, js.file,
                            "%s: the first %zu of %zu patterns take %zu bytes "
                            "compiled (at most %zu)",
                            js.path, i + 1, n, nbytes, MAX_NBYTES);
    }
    return 0;
}

/* Each end of a name after a dot is looked up. */
static int
check_dots(const struct peft *p, const char *module, struct err *err)
{
    size_t n = 0;

    for (const char *s = strchr(module, '.'); s; s = strchr(s + 1, '.'))
        n++;
    return n <= MAX_TAILS
               ? 0
               : err_data(err, p->path, "%.80s... has %zu dots (at most %d)",
                          module, n, MAX_TAILS);
}

/* Sets '*found' to the first pattern that matches the module, or NULL. */
static int
find_pattern(const struct peft *p, const struct peft_patterns *of,
             const char *module, struct peft_pattern **found, struct err *err)
{
    size_t n = strlen(module), place, a, b;
    int rc = 0;

    *found = NULL;
    if (of->n == 0)
        return 0;
    if (utf8_valid(module, n) != n)
        return err_data(err, p->path, "module \"%s\" is not UTF-8", module);
    p->work->nbytes += n;
    place = find_name(of, module);
    if (place < of->n)
        *found = &of->list[place];
    for (size_t i = 0; rc == 0 && i < of->n_regexes; i++) {
        if (*found && *found < of->regexes[i])
            break;
        rc = regex_find(of->regexes[i]->regex, p->work, module, n, 0, &a, &b,
                        err);
        if (rc > 0)
            *found = of->regexes[i];
    }
    if (*found)
        (*found)->used = true;
    return rc < 0 ? -1 : 0;
}

static const char *
without_root(const char *module)
{
    size_t n = strlen(PEFT_ROOT);

    return strncmp(module, PEFT_ROOT, n) ? module : module + n;
}

int
peft_pair(const struct peft *p, const char *module, struct peft_pair *pair,
          struct err *err)
{
    struct js js = js_get(&p->config, "lora_alpha");
    struct peft_pattern *r, *alpha;
    double a;

    module = without_root(module);
    if (check_dots(p, module, err) < 0 ||
        find_pattern(p, &p->r_of, module, &r, err) < 0 ||
        find_pattern(p, &p->alpha_of, module, &alpha, err) < 0)
        return -1;
    pair->r = r ? (int64_t)r->value : p->r;
    a = alpha ? alpha->value : p->alpha;
    pair->scale = a / (p->rslora ? sqrt((double)pair->r) : (double)pair->r);
    pair->alpha = p->rslora ? a * sqrt((double)pair->r) : a;
    if (!isfinite((float)pair->alpha))
        return js_bad(alpha ? &alpha->js : &js, "what F32 holds", err);
    return 0;
}

/* ---- target_modules, exclude_modules, layers_to_transform ---- */

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void
read_names(const struct js *js, struct peft_list *to)
{
    size_t n = json_array_size(js->v);

    to->list = xcalloc(n + 1, sizeof(*to->list));
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(js->v, i));

        if (s)
            to->list[to->n++] = s;
    }
    qsort(to->list, to->n, sizeof(*to->list), by_text);
}

/* Does a list have the module's name, or, with 'tail', its end after a dot? */
static bool
names_module(const struct peft_list *names, const char *module, bool tail)
{
    for (const char *dot; names->n; module = dot + 1) {
        if (bsearch(&module, names->list, names->n, sizeof(*names->list),
                    by_text))
            return true;
        dot = tail ? strchr(module, '.') : NULL;
        if (!dot)
            break;
    }
    return false;
}

static void
free_patterns(struct peft_patterns *of)
{
    for (size_t i = 0; i < of->n; i++)
        regex_free(of->list[i].regex);
    for (size_t i = 0; i < of->n_names; i++)
        free(of->names[i].text);
    free(of->regexes);
    free(of->names);
    free(of->list);
    *of = (struct peft_patterns){ 0 };
}

/* target_modules or exclude_modules may be one pattern, of whole names. */
static int
read_whole(const struct js *js, struct peft_patterns *to, struct err *err)
{
    const char *whole = json_string_value(js->v);

    if (!whole || !*whole)
        return 0;
    to->list = xcalloc(1, sizeof(*to->list));
    to->regexes = xcalloc(1, sizeof(*to->regexes));
    to->regexes[0] = to->list;
    to->n = to->n_regexes = 1;
    to->list->js = *js;
    return compile(js, whole, false, &to->list->regex, err);
}

static int
read_lists(struct peft *p, struct err *err)
{
    struct js targets = js_get(&p->config, "target_modules");
    struct js others = js_get(&p->config, "exclude_modules");
    struct js stacks = js_get(&p->config, "target_parameters");
    struct js words = js_get(&p->config, "layers_pattern");
    struct js layers = js_get(&p->config, "layers_to_transform");
    size_t n = json_array_size(layers.v);

    read_names(&targets, &p->targets);
    read_names(&others, &p->others);
    read_names(&stacks, &p->parameters);
    p->layers = xcalloc(n + 1, sizeof(*p->layers));
    if (js_is(&layers, JSON_INTEGER))
        p->layers[p->n_layers++] = json_integer_value(layers.v);
    for (size_t i = 0; i < n; i++)
        p->layers[p->n_layers++] =
            json_integer_value(json_array_get(layers.v, i));
    qsort(p->layers, p->n_layers, sizeof(*p->layers), by_i64);
    if (json_array_size(words.v) > MAX_WORDS)
        return err_data(err, words.file, "%s has %zu words (at most %d)",
                        words.path, json_array_size(words.v), MAX_WORDS);
    /* what PCRE2 does not read may be a pattern in Python all the same */
    if ((!js_is(&targets, JSON_STRING) ||
         strcasecmp(json_string_value(targets.v), "all-linear") != 0) &&
        read_whole(&targets, &p->target, err) < 0)
        free_patterns(&p->target);
    return read_whole(&others, &p->excluded, err);
}

/* The last number N of ".WORD.N." in a module's name, of this word or, if NULL,
 * of any; -1: there is none, or none that 64 bits hold. */
static int64_t
number_behind(const char *module, const char *word)
{
    int64_t number = -1;

    for (const char *p = strchr(module, '.'); p; p = strchr(p + 1, '.')) {
        const char *end = strchr(p + 1, '.');
        size_t digits = end ? strspn(end + 1, "0123456789") : 0;
        size_t n = end ? (size_t)(end - p) - 1 : 0;

        if (digits == 0 || end[1 + digits] != '.' ||
            (word && (strlen(word) != n || memcmp(p + 1, word, n))))
            continue;
        errno = 0;
        number = strtoll(end + 1, NULL, 10);
        number = errno ? -1 : number;
    }
    return number;
}

/* The layer that a module is of: by layers_pattern, a word or a list of them,
 * of which the first that is in the name counts; else by any word. */
static int64_t
layer_of(const struct peft *p, const char *module)
{
    struct js words = js_get(&p->config, "layers_pattern");
    int64_t layer = -1;

    if (js_is(&words, JSON_STRING) && *json_string_value(words.v))
        return number_behind(module, json_string_value(words.v));
    if (json_array_size(words.v) == 0)
        return number_behind(module, NULL);
    for (size_t i = 0; i < json_array_size(words.v) && layer < 0; i++) {
        const char *word = json_string_value(json_array_get(words.v, i));

        layer = word ? number_behind(module, word) : -1;
    }
    return layer;
}

/* Sets '*what' to the reason why PEFT does not adapt a module, NULL if it does,
 * or if target_modules is a pattern that this does not read. */
static int
find_target(const struct peft *p, const char *module, const char **what,
            struct err *err)
{
    struct js targets = js_get(&p->config, "target_modules");
    struct js layers = js_get(&p->config, "layers_to_transform");
    bool all_layers = js_absent(&layers) || (js_is(&layers, JSON_ARRAY) &&
                                             json_array_size(layers.v) == 0);
    struct peft_pattern *pattern;
    int64_t layer;

    *what = NULL;
    if (check_dots(p, module, err) < 0 ||
        find_pattern(p, &p->excluded, module, &pattern, err) < 0)
        return -1;
    layer = all_layers ? 0 : layer_of(p, module);
    if (pattern || names_module(&p->others, module, true))
        *what = EXCLUDED;
    else if (find_pattern(p, &p->target, module, &pattern, err) < 0)
        return -1;
    else if (p->target.n && !pattern)
        *what = "target_modules has no";
    else if (!js_is(&targets, JSON_ARRAY) ||
             names_module(&p->targets, module, false)) /* of whatever layer */
        return 0;
    else if (!names_module(&p->targets, module, true))
        *what = "target_modules has no";
    else if (!all_layers &&
             (layer < 0 || !bsearch(&layer, p->layers, p->n_layers,
                                    sizeof(*p->layers), by_i64)))
        *what = "layers_to_transform does not have the layer of";
    return 0;
}

int
peft_target(const struct peft *p, const char *module, struct err *err)
{
    const char *what;

    module = without_root(module);
    if (find_target(p, module, &what, err) < 0)
        return -1;
    if (!what)
        return 0;
    return err_data(err, p->path, "%s %s, %s", what, module,
                    !strcmp(what, EXCLUDED) ? "and so do the tensors"
                                            : "but the tensors do");
}

bool
peft_parameter(const struct peft *p, const char *name)
{
    return names_module(&p->parameters, without_root(name), true);
}

int
peft_adapts(struct peft *p, const char *module, bool *yes, struct err *err)
{
    struct js targets = js_get(&p->config, "target_modules");
    const char *what;

    if (find_target(p, module, &what, err) < 0)
        return -1;
    *yes = !what && (p->target.n || js_is(&targets, JSON_ARRAY));
    return 0;
}

size_t
peft_unused(const struct peft_patterns *of, const char **first)
{
    size_t n = 0;

    for (size_t i = of->n; i-- > 0;)
        if (!of->list[i].used) {
            *first = of->list[i].js.path;
            n++;
        }
    return n;
}

int
peft_open(struct peft *p, const char *dir, struct err *err)
{
    struct str path = { 0 };
    struct js r, alpha;

    *p = (struct peft){ .work = xcalloc(1, sizeof(*p->work)) };
    str_addf(&path, "%s/" PEFT_CONFIG, dir);
    p->path = path.s;
    if (file_missing(p->path) && stdir_has(dir, "config.json"))
        return err_set(
            err, EX_NOINPUT,
            "%s: is a model, not an adapter (" PEFT_CONFIG " is missing)", dir);
    if (file_is_dir(dir, err) == 0 && !file_missing(dir))
        return err_set(err, EX_DATAERR,
                       "%s: is a file, not a PEFT directory with " PEFT_CONFIG,
                       dir);
    p->root = js_load(p->path, err);
    if (!p->root)
        return -1;
    p->config = js_root(p->root, p->path);
    if (!js_is(&p->config, JSON_OBJECT))
        return js_bad(&p->config, "an object", err);
    r = js_get(&p->config, "r");
    alpha = js_get(&p->config, "lora_alpha");
    if (check_kind(p, err) < 0 || js_i64(&r, 1, INT32_MAX, &p->r, err) < 0 ||
        js_f64(&alpha, &p->alpha, err) < 0 ||
        js_bool_or(&p->config, "use_rslora", false, &p->rslora, err) < 0)
        return -1;
    if (read_lists(p, err) < 0 ||
        read_patterns(p, "rank_pattern", true, &p->r_of, err) < 0)
        return -1;
    return read_patterns(p, "alpha_pattern", false, &p->alpha_of, err);
}

void
peft_close(struct peft *p)
{
    free_patterns(&p->alpha_of);
    free_patterns(&p->r_of);
    free_patterns(&p->excluded);
    free_patterns(&p->target);
    if (p->work)
        regex_work_free(p->work);
    free(p->work);
    free(p->targets.list);
    free(p->others.list);
    free(p->parameters.list);
    free(p->layers);
    json_decref(p->root);
    free(p->path);
    *p = (struct peft){ 0 };
}

void
peft_enter(char **path)
{
    struct str peft = { 0 }, other = { 0 };
    const char *end = str_ends(*path, "/" PEFT_MODEL);
    bool is_here = !strcmp(*path, PEFT_MODEL), is_file = is_here || end;
    const char *dir = is_here ? "." : *path;
    size_t n = end ? (size_t)(end - dir) : strlen(dir);

    str_addf(&peft, "%.*s/" PEFT_CONFIG, (int)n, dir);
    str_addf(&other, "%.*s%s", (int)n, dir, is_file ? "" : "/lora.safetensors");
    /* opening them reports what is wrong with either */
    if (file_missing(peft.s) != is_file && !file_missing(other.s)) {
        free(*path);
        *path = xstrdup(other.s);
    }
    str_free(&peft);
    str_free(&other);
}
