/*
 * --window: rows are read in the dump's order into W slots; each step sends
 * one of the slots on its way, drawn at random, and the next row takes it.
 */
#include <string.h>

#include "cmd/saev-read/emit.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"

#define STREAM ((size_t)1 << 20)   /* bytes read at a time */
#define WAY    ((size_t)256 << 10) /* bytes written at a time */
#define DRAWS  64                  /* slots known ahead */

/* A record is a row, or with --index its number. */
struct window {
    struct shuffle *s;
    size_t record;
    size_t n_slots;
    char *slots; /* [n_slots] */
    char *in;    /* [room]: rows in_first .. in_first + in_n - 1 */
    size_t in_room, in_first, in_n;
    char *out; /* [out_room], of which out_n wait */
    size_t out_room, out_n;
    size_t draws[DRAWS]; /* of steps 64 k ..  */
};

static int
window_open(struct window *w, struct shuffle *s, struct err *err)
{
    size_t record = s->row_nbytes ? s->row_nbytes : sizeof(uint64_t);

    *w = (struct window){ .s = s, .record = record };
    w->n_slots = s->cmd->window < s->n ? s->cmd->window : s->n;
    w->in_room = !w->n_slots ? 0 : STREAM > record ? STREAM / record : 1;
    w->out_room = w->n_slots ? (WAY + record - 1) / record : 0;
    w->slots = mem_big(w->n_slots, record, "a window", err);
    w->in = mem_big(w->in_room, record, "rows", err);
    w->out = mem_big(w->out_room, record, "rows", err);
    return w->slots && w->in && w->out ? 0 : -1;
}

/* Rows first .. first + n - 1 as records. */
static int
read_records(struct window *w, size_t first, size_t n, char *to,
             struct err *err)
{
    if (w->s->row_nbytes)
        return gather_range(&w->s->gather, first, n, to, err);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = first + i;

        memcpy(to + i * sizeof(row), &row, sizeof(row));
    }
    return 0;
}

/* The record of a row; rows are asked for in their order. */
static const char *
record_of(struct window *w, size_t row, struct err *err)
{
    if (row >= w->in_first + w->in_n) {
        w->in_first = row;
        w->in_n = w->s->n - row < w->in_room ? w->s->n - row : w->in_room;
        if (read_records(w, row, w->in_n, w->in, err) < 0)
            return NULL;
    }
    return w->in + (row - w->in_first) * w->record;
}

static int
flush(struct window *w, struct err *err)
{
    size_t n = w->out_n;

    w->out_n = 0;
    if (w->s->row_nbytes)
        return emit_rows(&w->s->emit, w->out, n, err);
    for (size_t i = 0; i < n; i++) {
        uint64_t row;

        memcpy(&row, w->out + i * sizeof(row), sizeof(row));
        if (places_put(&w->s->places, row, err) < 0)
            return -1;
    }
    return 0;
}

static size_t
slots_at(const struct window *w, size_t step)
{
    size_t left = w->s->n - step;

    return left < w->n_slots ? left : w->n_slots;
}

static int
window_step(struct window *w, size_t step, struct err *err)
{
    size_t m = slots_at(w, step);
    const char *by = w->slots + (m - 1) * w->record;
    char *slot;

    if (step % DRAWS == 0)
        for (size_t i = 0; i < DRAWS && step + i < w->s->n; i++) {
            w->draws[i] =
                perm_below(w->s->perm, step + i, slots_at(w, step + i));
            __builtin_prefetch(w->slots + w->draws[i] * w->record);
        }
    slot = w->slots + w->draws[step % DRAWS] * w->record;
    if (step >= w->s->skip)
        memcpy(w->out + w->out_n++ * w->record, slot, w->record);
    if (w->s->n - step > w->n_slots)
        by = record_of(w, step + w->n_slots, err);
    if (!by)
        return -1;
    memmove(slot, by, w->record);
    return w->out_n == w->out_room ? flush(w, err) : 0;
}

int
shuffle_window(struct shuffle *s, struct err *err)
{
    struct window w;
    struct str how = { 0 };
    int rc = window_open(&w, s, err);

    str_addf(&how, "through %zu slots", w.n_slots);
    shuffle_say(s, how.s);
    str_free(&how);
    if (rc == 0 && w.n_slots)
        rc = read_records(&w, 0, w.n_slots, w.slots, err);
    w.in_first = w.n_slots;
    for (size_t step = 0; step < s->n && rc == 0; step++)
        rc = window_step(&w, step, err);
    if (rc == 0)
        rc = flush(&w, err);
    mem_big_free(w.slots, w.n_slots, w.record);
    mem_big_free(w.in, w.in_room, w.record);
    mem_big_free(w.out, w.out_room, w.record);
    return rc;
}
