/*
 * st-inspect's own parts: the parsed command line, the verbs, and what they
 * share.  A verb returns the exit status of its answer (0, or TU_NEGATIVE),
 * or -1 with 'err' set; only main.c prints errors and exits.
 */
#ifndef ST_INSPECT_H
#define ST_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/format/st.h"
#include "core/format/stdir.h"
#include "core/hash.h"
#include "core/opt_value.h"
#include "core/out.h"
#include "core/par.h"
#include "core/str.h"

#define MAX_QUANTILES 16
#define MAX_BINS      1000

/* Levels of a tree: a name of nothing but dots prints no more rows, and no
 * longer ones, than that times its bytes. */
#define TREE_MAX_DEPTH 64

enum sort_key { SORT_NAME, SORT_FILE, SORT_SIZE };

struct cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    struct opt_list globs; /* -t; a tensor is meant if any of them matches */
    bool json, align, fold, long_rows, hist, raw, whole, all, ignore_dtype;
    bool quiet, verbose;
    int out_flags; /* OUT_FORCE or 0 */
    int n_threads;
    const char *out_path, *svg, *check, *slice;
    enum sort_key sort;
    enum hash_kind hash;
    int dtype;     /* of cat's output; -1: as in the file */
    int64_t depth; /* of the tree; 0: TREE_MAX_DEPTH */
    int64_t n_bins;
    double atol, rtol;
    double quantiles[MAX_QUANTILES];
    size_t n_quantiles;

    struct out *out; /* the answer goes here, by way of 'text' */
    struct str text;
    size_t n_rows;   /* of a JSON array over several operands */
    struct par *par; /* NULL: one thread */
};

/* The verbs, each in the file of its name. */
int list_main(struct cmd *cmd, struct err *err);
int tree_main(struct cmd *cmd, struct err *err);
int stats_main(struct cmd *cmd, struct err *err);
int hash_main(struct cmd *cmd, struct err *err);
int verify_main(struct cmd *cmd, struct err *err);
int diff_main(struct cmd *cmd, struct err *err);
int cat_main(struct cmd *cmd, struct err *err);
int meta_main(struct cmd *cmd, struct err *err);

/*
 * text.c: the answer.  Verbs append to cmd->text and call text_end() after
 * each row, which writes when enough has gathered.
 */
int text_end(struct cmd *cmd, struct err *err);
int text_finish(struct cmd *cmd, struct err *err); /* aligns, writes, commits */

/* What they append to a row: a number, "2x3", and so on. */
void put_u64(struct str *to, uint64_t v);
void put_shape(struct str *to, size_t n_dims, const uint64_t *shape);
void put_g6(struct str *to, double v);               /* six digits, "nan" */
void put_esc(struct str *to, const char *s);         /* str_esc() of a string */
void put_json_str(struct str *to, const char *s);    /* quoted */
void put_json_key(struct str *to, const char *name); /* ,"name": */

/* A member, its key and its value; of NaN and infinities null. */
void put_json_u64(struct str *to, const char *name, uint64_t v);
void put_json_f64(struct str *to, const char *name, double v);
void put_json_text(struct str *to, const char *name, const char *s);

/*
 * select.c: one file or folder and the tensors in it that -t means, in
 * natural order of names (layers.2 before layers.10).
 */
struct selection {
    struct stdir dir;
    size_t n;
    const struct stdir_tensor **t; /* [n] */
    uint64_t n_elements;           /* sums over t */
    uint64_t nbytes;
};

/* select_open(): -1 with 'err' set, as stdir_open(), or EX_NOINPUT when -t
 * matches nothing.  Owner: the caller, until select_close(). */
int select_open(struct selection *sel, const char *path, const struct cmd *cmd,
                struct err *err);
void select_close(struct selection *sel);
bool select_matches(const struct cmd *cmd, const struct st_tensor *t);

/* dot_first() orders bytes with the dot before all others: a module's tensors
 * then follow each other, and a tensor of the module's own name. */
unsigned char dot_first(char c);

/* select_find() finds a tensor by its name, or by its name as list prints it;
 * NULL with 'err' set (EX_NOINPUT). */
const struct stdir_tensor *select_find(const struct stdir *dir,
                                       const char *name, struct err *err);

/* say_totals() is -v's line on stderr: "m: 311 tensors, ...". */
void say_totals(const struct cmd *cmd, const struct selection *sel);

/* need_threads() fills cmd->par, once: -j, or this process's CPUs. */
int need_threads(struct cmd *cmd, struct err *err);

/* one_operand(): the verb's only operand, or NULL with 'err' set (TU_USAGE). */
const char *one_operand(const struct cmd *cmd, struct err *err);

/*
 * fold.c: tensors that differ only in numbers between dots, of one dtype and
 * shape, as one row: "layers.{0..31}.mlp.up_proj.weight".
 */
struct fold_row {
    const struct st_tensor *t; /* one of them */
    char *name;
    size_t name_n;
    uint64_t count; /* tensors */
};

struct folded {
    size_t n;
    struct fold_row *rows; /* [n], in the selection's order */
};

/* fold() needs memory in the number of tensors: -1 with 'err' set. */
int fold(struct folded *folded, const struct selection *sel, struct err *err);
void fold_free(struct folded *folded);

/*
 * A tensor's bytes in some file, for the verbs that read values.
 */
struct view {
    const char *path;
    int fd;
    size_t offset; /* in the file */
    enum dtype dtype;
    size_t n_dims;
    const uint64_t *shape;
    uint64_t n; /* elements */
    size_t nbytes;
};

/* view_of() is a view of a tensor: valid as long as its file is open. */
struct view view_of(const struct stdir_tensor *t);

/* view_read() reads elements [first, first + n), of a type of whole bytes. */
int view_read(const struct view *v, void *buf, uint64_t first, size_t n,
              struct err *err);

/* widen() makes doubles of n elements; exact but for 64-bit integers. */
void widen(double *to, const void *from, enum dtype dtype, size_t n);
bool widens(enum dtype dtype); /* has elements that are real numbers */

/*
 * stats.c drives; counts.c, moments.c and ranks.c compute.  NaN and infinities
 * are counted; everything else is over the finite elements.
 */
struct stats {
    uint64_t n, n_finite, n_nan, n_inf, n_zero;
    double min, max, mean, std; /* NaN when n_finite is 0; std is over n */
    double quantiles[MAX_QUANTILES];
    bool known; /* false: a type without numbers, and nothing else is set */
    bool has_quantiles;
    double lo, hi;  /* outer edges of the histogram */
    uint64_t *hist; /* [cmd->n_bins]; NULL: none wanted */
};

#define PIECE_NBYTES ((size_t)256 << 10) /* of a read: stays in the cache */
#define CHUNK        ((size_t)32768)     /* elements summed at a time */
#define COUNT_TABLES 4
#define COUNT_KEYS   65536

/* A value and how often it occurs. */
struct bin {
    double v;
    uint64_t n;
};

/* The bit patterns ("keys") of a counted type in the order of their values:
 * sign and magnitude for floats, with NaNs at both ends; two's complement for
 * integers; or as they are. */
struct key_order {
    double *values;  /* [rank]; NULL: the type is not used */
    uint16_t *keys;  /* [rank] */
    uint16_t *ranks; /* [key] */
};

struct thread_scratch {
    uint8_t *piece;   /* [PIECE_NBYTES] */
    double *wide;     /* [CHUNK] */
    uint32_t *tables; /* [COUNT_TABLES][COUNT_KEYS], zero between uses */
    uint64_t *totals; /* [COUNT_KEYS] */
    struct bin *bins; /* [COUNT_KEYS] */
    uint64_t *hist;   /* [MAX_BINS], zero between uses */
    struct err err;   /* the first of this thread; status 0: none */
};

/* Memory for each thread, and what each key of a counted type means. */
struct scratch {
    int n_threads;
    struct thread_scratch *threads;
    struct key_order order[DT_COUNT];
};

/* scratch_open(): some 3 MiB a thread.  -1 with 'err' set (EX_SOFTWARE). */
int scratch_open(struct scratch *s, int n_threads, struct err *err);
void scratch_close(struct scratch *s);

/* scratch_prepare() fills order[dtype], before threads use it. */
void scratch_prepare(struct scratch *s, enum dtype dtype);

/* scratch_error() moves a thread's error to 'err': -1 if there was one. */
int scratch_error(struct scratch *s, struct err *err);

/*
 * stats_of() fills 'st', whose hist the caller has set.  par NULL: in this
 * thread, which is 'thread'.  The result depends on neither.  Errors go to
 * the scratch memory of the threads.
 */
void stats_of(struct stats *st, const struct view *v, const struct cmd *cmd,
              struct scratch *s, struct par *par, int thread);
void counts_stats(struct stats *st, const struct view *v, const struct cmd *cmd,
                  struct scratch *s, struct par *par, int thread);
void moments_stats(struct stats *st, const struct view *v,
                   const struct cmd *cmd, struct scratch *s, struct par *par,
                   int thread);

/* ranks_quantiles() is for what moments_stats() cannot know; of 32-bit types
 * with a finite element, after it. */
void ranks_quantiles(struct stats *st, const struct view *v,
                     const struct cmd *cmd, struct scratch *s, struct par *par,
                     int thread);

/* between() is the value at the place 'at', a and b being those at the whole
 * numbers around: numpy's linear method, in its formula, for its bits. */
double between(double a, double b, double at);

/* counts_drain() adds a thread's tables to 'totals' and clears them. */
void counts_drain(uint64_t *totals, uint32_t *tables, size_t n_keys);

bool is_counted(enum dtype dtype); /* by counts_stats(): up to 16 bits */

/* hist.c: the drawing. */
void hist_range(struct stats *st); /* lo and hi from min and max, as numpy */
size_t hist_bin(const struct stats *st, size_t n_bins, double v);
void hist_rows(struct str *to, const struct stats *st, size_t n_bins,
               const struct st_tensor *t);
int hist_svg(struct out *out, const struct cmd *cmd,
             const struct selection *sel, const struct stats *stats,
             struct err *err);

/*
 * compare.c: how far B's numbers are from A's.  NaN in both is no difference;
 * NaN in one makes max_abs, relative and cosine NaN.
 */
struct distance {
    bool other_bytes;
    bool measured;     /* false: the same, or not of real numbers */
    uint64_t n_differ; /* |a - b| > atol + rtol |a| */
    double max_abs;
    double relative; /* norm of B - A, by the norm of A */
    double cosine;
    uint64_t max_ulp; /* only between floats of one type */
};

/* compare_open() takes the memory that all comparisons share: NULL with 'err'
 * set if there is none.  cmd->par must be open. */
struct comparer;
struct comparer *compare_open(const struct cmd *cmd, struct err *err);
void compare_close(struct comparer *c); /* NULL is fine */
int compare(struct comparer *c, struct distance *d, const struct view *a,
            const struct view *b, struct err *err);

/*
 * slice.c: numpy's basic indexing, "0:4,:,-1" of a shape.
 */
struct slice_axis {
    int64_t start, step; /* in elements of this axis */
    uint64_t count;
    bool keep; /* false: an integer index, which drops the axis */
};

struct slice {
    size_t n_dims;
    struct slice_axis *axis; /* [n_dims] of the tensor */
    uint64_t n;              /* elements taken */
};

/* slice_parse(): text NULL takes everything.  -1 with TU_USAGE. */
int slice_parse(struct slice *s, const char *text, size_t n_dims,
                const uint64_t *shape, struct err *err);
void slice_free(struct slice *s);

/* hashing.c: digests of a file and its tensors in one pass. */
struct file_hash {
    char whole[HASH_MAX_HEX];
    char (*tensors)[HASH_MAX_HEX]; /* [st->n_tensors]; NULL: not wanted */
};

/* hash_st() reads all of an open file, with all threads of par (or NULL). */
int hash_st(struct file_hash *fh, const struct st *st, enum hash_kind kind,
            bool tensors, struct par *par, struct err *err);
void file_hash_free(struct file_hash *fh);

/* One tensor; one file of any format. */
int hash_range(char hex[HASH_MAX_HEX], const struct view *v,
               enum hash_kind kind, struct err *err);
int hash_plain(char hex[HASH_MAX_HEX], const char *path, enum hash_kind kind,
               struct err *err);

int check_main(struct cmd *cmd, struct err *err); /* hash --check FILE */

/* sums.c: the list of hash --check. */
struct sums_line {
    enum hash_kind kind;
    char digest[HASH_MAX_HEX];
    struct str file, tensor; /* tensor.s NULL: the whole file */
    dev_t dev;               /* which file that is; 0, 0: it is not there */
    ino_t ino;
    size_t first;       /* of its file's lines, in their order by file */
    const char *result; /* NULL: not known yet */
};

struct sums {
    struct sums_line *v; /* [n], in the list's order */
    size_t n, cap;
};

/*
 * sums_parse() reads text[0, nbytes), behind which is a NUL, into a zeroed
 * struct: hash's own lines, sha256sum's and xxhsum's, those of --tag.  -1 with
 * 'err' set, EX_DATAERR: a line that is none of them, or there is none.  Owner:
 * the caller, until sums_free(), after an error as well.
 */
int sums_parse(struct sums *sums, const char *text, size_t nbytes,
               const char *name, struct err *err);
void sums_free(struct sums *sums);

#endif
