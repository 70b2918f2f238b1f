/*
 * --window: rows are read in the dump's order into W slots; each step writes
 * the row of one slot, drawn at random, and the next row replaces it.
 */
#include <string.h>

#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"
#include "core/tty.h"

#define IN_NBYTES  ((size_t)1 << 20)   /* read at a time */
#define OUT_NBYTES ((size_t)256 << 10) /* written at a time */
#define DRAWS      64                  /* slots prefetched */

/* A record is a row, or with --index its number. */
struct window {
    struct shuffle *s;
    size_t record;
    size_t n_slots;
    char *slots; /* [n_slots] */
    char *in;    /* [in_room]: rows in_first .. in_first + in_n - 1 */
    size_t in_room, in_first, in_n;
    char *out; /* [out_room], of which out_n wait */
    size_t out_room, out_n;
    size_t draws[DRAWS]; /* of steps DRAWS k ..  */
};

/* Rows first .. first + n - 1 as records. */
static int
read_records(struct window *w, size_t first, size_t n, char *to,
             struct err *err)
{
    if (w->s->row_nbytes)
        return gather_range(&w->s->gather, first, n, to, err);
    for (uint64_t row = first; row < first + n; row++, to += sizeof(row))
        memcpy(to, &row, sizeof(row));
    return 0;
}

static int
write_records(struct window *w, struct err *err)
{
    size_t n = w->out_n;

    w->out_n = 0;
    if (w->s->row_nbytes)
        return emit_rows(&w->s->emit, w->out, n, err);
    for (size_t i = 0; i < n; i++) {
        uint64_t row;

        memcpy(&row, w->out + i * sizeof(row), sizeof(row));
        if (emit_place(&w->s->emit, row, err) < 0)
            return -1;
    }
    return 0;
}

/* How many slots hold rows that are not written. */
static size_t
slots_at(const struct window *w, size_t step)
{
    return smaller(w->s->n - step, w->n_slots);
}

static int
window_step(struct window *w, size_t step, struct err *err)
{
    size_t next = step + w->n_slots; /* the row that is read now */
    const char *from = w->slots + (slots_at(w, step) - 1) * w->record;
    char *slot;

    if (step % DRAWS == 0)
        for (size_t i = 0; i < DRAWS && step + i < w->s->n; i++) {
            w->draws[i] =
                perm_below(w->s->perm, step + i, slots_at(w, step + i));
            __builtin_prefetch(w->slots + w->draws[i] * w->record);
        }
    slot = w->slots + w->draws[step % DRAWS] * w->record;
    if (step >= w->s->cmd->skip)
        memcpy(w->out + w->out_n++ * w->record, slot, w->record);
    if (next < w->s->n) {
        if (next >= w->in_first + w->in_n) {
            w->in_first = next;
            w->in_n = smaller(w->s->n - next, w->in_room);
            if (read_records(w, next, w->in_n, w->in, err) < 0)
                return -1;
        }
        from = w->in + (next - w->in_first) * w->record;
    }
    memmove(slot, from, w->record);
    return w->out_n == w->out_room ? write_records(w, err) : 0;
}

int
shuffle_window(struct shuffle *s, struct err *err)
{
    struct window w = { .s = s,
                        .record =
                            s->row_nbytes ? s->row_nbytes : sizeof(uint64_t),
                        .n_slots = smaller(s->cmd->window, s->n) };
    struct str how = { 0 };
    int rc = -1;

    w.in_room = w.n_slots ? larger(IN_NBYTES / w.record, 1) : 0;
    w.out_room = w.n_slots ? (OUT_NBYTES + w.record - 1) / w.record : 0;
    w.slots = mem_big(w.n_slots, w.record, "a window", err);
    if (w.slots)
        w.in = mem_big(w.in_room, w.record, "rows", err);
    if (w.in)
        w.out = mem_big(w.out_room, w.record, "rows", err);
    str_addf(&how, "through %zu slot%s", w.n_slots, plural(w.n_slots));
    shuffle_say(s, how.s);
    str_free(&how);
    if (w.out)
        rc = w.n_slots ? read_records(&w, 0, w.n_slots, w.slots, err) : 0;
    w.in_first = w.n_slots;
    for (size_t step = 0; step < s->n && rc == 0; step++)
        rc = window_step(&w, step, err);
    if (rc == 0)
        rc = write_records(&w, err);
    mem_big_free(w.slots, w.n_slots, w.record);
    mem_big_free(w.in, w.in_room, w.record);
    mem_big_free(w.out, w.out_room, w.record);
    return rc;
}
