/* SPDX-License-Identifier: ISC */
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
    char *in; /* [in_room]: rows in_first .. in_first + in_n - 1 */
    size_t in_room, in_first, in_n;
    char *out; /* [out_room], of which out_n wait */
    size_t out_room, out_n;
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

int
shuffle_window(struct shuffle *s, struct err *err)
{
    size_t record = s->row_nbytes ? s->row_nbytes : sizeof(uint64_t);
    size_t n_slots = smaller(s->cmd->window, s->n);
    struct window w = { .s = s, .record = record };
    size_t draws[DRAWS]; /* of the next steps */
    struct str how = { 0 };
    char *slots;
    int rc = -1;

    w.in_room = n_slots ? larger(IN_NBYTES / record, 1) : 0;
    w.out_room = n_slots ? (OUT_NBYTES + record - 1) / record : 0;
    slots = mem_big(n_slots, record, "a window", err);
    if (slots)
        w.in = mem_big(w.in_room, record, "rows", err);
    if (w.in)
        w.out = mem_big(w.out_room, record, "rows", err);
    str_addf(&how, "through %zu slot%s", n_slots, plural(n_slots));
    shuffle_say(s, how.s);
    str_free(&how);
    if (w.out)
        rc = n_slots ? read_records(&w, 0, n_slots, slots, err) : 0;
    w.in_first = n_slots;
    for (size_t step = 0; step < s->n && rc == 0; step++) {
        /* the row that is read now; until the last is, all slots are full */
        size_t next = step + n_slots, n_full = smaller(s->n - step, n_slots);
        const char *from = slots + (n_full - 1) * record;
        char *slot;

        if (step % DRAWS == 0)
            for (size_t i = 0; i < DRAWS && step + i < s->n; i++) {
                draws[i] = perm_below(s->perm, step + i,
                                      smaller(s->n - step - i, n_slots));
                __builtin_prefetch(slots + draws[i] * record);
            }
        slot = slots + draws[step % DRAWS] * record;
        if (step >= s->cmd->skip)
            memcpy(w.out + w.out_n++ * record, slot, record);
        if (next < s->n) {
            if (next >= w.in_first + w.in_n) {
                w.in_first = next;
                w.in_n = smaller(s->n - next, w.in_room);
                rc = read_records(&w, next, w.in_n, w.in, err);
            }
            from = w.in + (next - w.in_first) * record;
        }
        memmove(slot, from, record);
        if (rc == 0 && w.out_n == w.out_room)
            rc = write_records(&w, err);
    }
    if (rc == 0)
        rc = write_records(&w, err);
    mem_big_free(slots, n_slots, record);
    mem_big_free(w.in, w.in_room, record);
    mem_big_free(w.out, w.out_room, record);
    return rc;
}
