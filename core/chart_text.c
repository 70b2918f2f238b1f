/* SPDX-License-Identifier: ISC */
/* chart.h in characters: bars, columns and lines. */
#include "core/chart.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"

#define LINE_ROWS   14
#define COLUMN_ROWS 6 /* some */
#define MAX_ROWS    LINE_ROWS
#define BAR_WIDTH   40 /* of the longest bar */
#define N_X_TICKS   5
#define NUMBER      24 /* bytes of a number as text */
#define Y_NUMBER    14 /* the longest left of an axis, for 80 columns */
#define TITLE_MAX   76 /* columns, of which 3 are the "..." of a long one */

/* Is the codeset UTF-8?  What the first of LC_ALL, LC_CTYPE and LANG says that
 * is not empty, whether or not that locale is installed. */
static bool
is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    const char *locale = "", *codeset;

    for (size_t i = 0; i < 3 && !*locale; i++) {
        const char *value = getenv(names[i]);

        locale = value ? value : "";
    }
    codeset = strchr(locale, '.');
    codeset = codeset ? codeset + 1 : locale; /* macOS has "UTF-8" alone */
    return !strncasecmp(codeset, "utf-8", 5) ||
           !strncasecmp(codeset, "utf8", 4);
}

static void
put_char(struct str *to, uint32_t c)
{
    char s[4];

    str_add(to, s, (size_t)utf8_put(s, c));
}

static void
put_spaces(struct str *to, size_t n)
{
    while (n-- > 0)
        str_addc(to, ' ');
}

static void
end_line(struct str *to)
{
    while (to->n && to->s[to->n - 1] == ' ')
        to->n--;
    str_addc(to, '\n');
}

static int
number(char text[NUMBER], double v, int digits)
{
    if (isnan(v)) /* printf would show its sign */
        return snprintf(text, NUMBER, "nan");
    if (fabs(v) < 1e10 && v == floor(v))
        digits = 10;
    return snprintf(text, NUMBER, "%.*g", digits, v == 0 ? 0 : v);
}

/* ---- bars ---- */

/* The character for so many eighths of a cell, 0 to 8, whose full block and
 * whose first part are 'full' and 'part' in Unicode. */
static uint32_t
eighths_char(unsigned eighths, bool utf8, uint32_t full, uint32_t part, int up)
{
    if (eighths == 0)
        return ' ';
    if (utf8)
        return eighths == 8 ? full : part + (uint32_t)(up * ((int)eighths - 1));
    return eighths == 8 ? '#' : eighths < 4 ? '.' : ':';
}

static unsigned
eighths_of(double v, double max, unsigned cells)
{
    unsigned n = (unsigned)lrint(v / max * cells * 8);

    return n ? n : v > 0;
}

static void
put_bar(struct str *to, double v, double max, bool negative, bool utf8)
{
    unsigned room = negative ? BAR_WIDTH / 2 : BAR_WIDTH;
    unsigned n = isfinite(v) ? eighths_of(fabs(v), max, room) : 0;

    if (negative) {
        unsigned left = v < 0 ? (n + 4) / 8 : 0;

        left = v < 0 && !left && n ? 1 : left;
        put_spaces(to, room - left);
        for (unsigned i = 0; i < left; i++)
            put_char(to, utf8 ? 0x2588 : '#');
        put_char(to, utf8 ? 0x2502 : '|');
        n = v < 0 ? 0 : n;
    }
    for (unsigned at; n > 0; n -= at) {
        at = n < 8 ? n : 8;
        put_char(to, eighths_char(at, utf8, 0x2588, 0x258f, -1));
    }
    end_line(to);
}

void
chart_bars(struct str *to, const struct chart_mark *bars, size_t n)
{
    bool utf8 = is_utf8(), negative = false;
    size_t label_n = 0, value_n = 0;
    struct str label = { 0 };
    char text[NUMBER];
    double max = 0;

    for (size_t i = 0; i < n; i++) {
        str_clear(&label);
        str_esc_end(&label, bars[i].label, strlen(bars[i].label),
                    CHART_LABEL_MAX);
        label_n = larger(label_n, str_columns(label.s, label.n));
        value_n = larger(value_n, (size_t)number(text, bars[i].v, 4));
        if (isfinite(bars[i].v)) {
            max = fmax(max, fabs(bars[i].v));
            negative |= bars[i].v < 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        str_clear(&label);
        str_esc_end(&label, bars[i].label, strlen(bars[i].label),
                    CHART_LABEL_MAX);
        str_add(to, label.s, label.n);
        put_spaces(to, label_n - str_columns(label.s, label.n));
        number(text, bars[i].v, 4);
        str_addf(to, "  %*s ", (int)value_n, text);
        put_bar(to, bars[i].v, max > 0 ? max : 1, negative, utf8);
    }
    str_free(&label);
}

/* ---- what is between the axes ---- */

struct grid {
    bool utf8;
    size_t rows, width;
    uint32_t cell[MAX_ROWS][CHART_WIDTH]; /* 0: nothing */
    double tick[MAX_ROWS + 1]; /* the last is the axis below; NaN: none */
};

static size_t
put_y_numbers(const struct grid *g, int digits, char text[][NUMBER])
{
    size_t most = 0;

    for (size_t r = 0; r <= g->rows; r++) {
        *text[r] = '\0';
        if (!isnan(g->tick[r]))
            most = larger(most, (size_t)number(text[r], g->tick[r], digits));
    }
    return most > Y_NUMBER ? put_y_numbers(g, digits - 1, text) : most;
}

/* The axis below, and its numbers: the first begins at its tick, the last ends
 * there, and those between them that have room are in the middle. */
static void
put_x(struct str *to, const struct grid *g, const struct chart *a,
      const char *y, size_t margin)
{
    char text[N_X_TICKS][NUMBER];
    long at[N_X_TICKS], from, done = 0, last_from;
    size_t n = 0;
    /* in parts: the whole could be infinite */
    double step = (a->right / 2 - a->left / 2) / (N_X_TICKS - 1) * 2;
    int digits = scale_digits(fmax(fabs(a->left), fabs(a->right)), step, 3);

    for (int i = 0; i < N_X_TICKS; i++) {
        double part = (double)i / (N_X_TICKS - 1);
        double v = a->left * (1 - part) + a->right * part;

        if (a->whole_x) {
            v = floor(v);
            part =
                a->right > a->left ? (v - a->left) / (a->right - a->left) : 0;
        }
        number(text[n], v, digits);
        at[n] = a->right > a->left ? lrint(part * (double)(g->width - 1)) : 0;
        n +=
            n == 0 || (at[n] != at[n - 1] && strcmp(text[n], text[n - 1]) != 0);
    }
    str_addf(to, "%*s ", (int)margin - 1, y);
    put_char(to, g->utf8 ? 0x2514 : '+');
    for (size_t c = 0, i = 0; c < g->width; c++) {
        bool is_tick = i < n && at[i] == (long)c;

        put_char(to,
                 is_tick ? (g->utf8 ? 0x252c : '+') : (g->utf8 ? 0x2500 : '-'));
        i += is_tick;
    }
    end_line(to);
    last_from = at[n - 1] - (n > 1 ? (long)strlen(text[n - 1]) - 1 : 0);
    for (size_t i = 0; i < n; i++) {
        long m = (long)strlen(text[i]);

        from = i == 0 ? 0 : i + 1 == n ? last_from : at[i] - m / 2;
        if (i && (from < done + 1 || (i + 1 < n && from + m + 1 > last_from)))
            continue;
        put_spaces(to, i ? (size_t)(from - done) : margin + 1);
        str_adds(to, text[i]);
        done = from + m;
    }
    end_line(to);
    put_spaces(to, margin + 1);
    str_addf(to, "%s\n", a->x);
}

static void
put_grid(struct str *to, const struct grid *g, const struct chart *a,
         const struct scale *s)
{
    char text[MAX_ROWS + 1][NUMBER];
    size_t most = put_y_numbers(g, scale_tick_digits(s, 6), text);

    str_addf(to, "%s%s\n", a->y, s->log ? " (log scale)" : "");
    for (size_t r = 0; r < g->rows; r++) {
        bool is_tick = *text[r];

        str_addf(to, "%*s ", (int)most, text[r]);
        put_char(to,
                 is_tick ? (g->utf8 ? 0x2524 : '+') : (g->utf8 ? 0x2502 : '|'));
        for (size_t c = 0; c < g->width; c++)
            put_char(to, g->cell[r][c] ? g->cell[r][c] : ' ');
        end_line(to);
    }
    put_x(to, g, a, text[g->rows], most + 1);
}

/* ---- columns ---- */

static void
put_columns(struct grid *g, const struct chart *a, const struct scale *s)
{
    size_t n = a->n_columns, each = n < CHART_WIDTH ? CHART_WIDTH / n : 1;

    /* as many rows between each two ticks; a tick's row is filled by a column
     * of its height, and 0 is at the axis */
    g->rows = (size_t)lrint((double)COLUMN_ROWS / (double)(s->n - 1));
    g->rows = larger(g->rows, 1) * (s->n - 1);
    g->width = n < CHART_WIDTH ? n * each : CHART_WIDTH;
    for (size_t i = 0; i < s->n; i++)
        g->tick[g->rows - i * g->rows / (s->n - 1)] = s->tick[i];
    for (size_t c = 0; c < g->width; c++) {
        size_t first = c * n / g->width, end = (c + 1) * n / g->width;
        double most = 0;
        unsigned up;

        for (size_t i = first; i < larger(end, first + 1); i++)
            most = fmax(most, scale_clip(a->columns[i], false));
        up = eighths_of(most, s->high, (unsigned)g->rows);
        for (size_t r = g->rows; r-- > 0 && up > 0;) {
            unsigned part = up < 8 ? up : 8;

            g->cell[r][c] = eighths_char(part, g->utf8, 0x2588, 0x2581, 1);
            up -= part;
        }
    }
}

/* ---- lines ---- */

/* A cell is 2 by 4 dots. */
struct dot {
    long x, y; /* y from the top */
};

static void
put_dot(struct grid *g, long x, long y)
{
    static const uint8_t bits[4][2] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    uint32_t *cell = &g->cell[y / 4][x / 2];

    *cell = g->utf8 ? *cell | 0x2800 | bits[y % 4][x % 2] : '*';
}

static void
join(struct grid *g, struct dot a, struct dot b)
{
    long n =
        labs(b.x - a.x) > labs(b.y - a.y) ? labs(b.x - a.x) : labs(b.y - a.y);

    for (long i = 0; i <= n; i++)
        put_dot(g, n ? a.x + lrint((double)((b.x - a.x) * i) / (double)n) : a.x,
                n ? a.y + lrint((double)((b.y - a.y) * i) / (double)n) : a.y);
}

/* Can it be drawn, and where? */
static bool
place(struct dot *d, const struct grid *g, const struct chart *a,
      const struct scale *s, double x, double y)
{
    double across =
        a->right > a->left ? (x - a->left) / (a->right - a->left) : 0;

    y = scale_clip(y, a->log_y);
    if (isnan(y) || !(across >= 0 && across <= 1))
        return false;
    y = scale_part(s, y);
    d->x = lrint(across * (double)(2 * g->width - 1));
    d->y = lrint((1 - y) * (double)(4 * g->rows - 1));
    return true;
}

static void
put_lines(struct grid *g, const struct chart *a, const struct scale *s)
{
    struct dot d = { 0 }, was = d;

    g->rows = LINE_ROWS;
    g->width = CHART_WIDTH;
    for (size_t i = 0; i < s->n; i++)
        g->tick[lrint((1 - scale_part(s, s->tick[i])) *
                      (double)(4 * g->rows - 1)) /
                4] = s->tick[i];
    for (size_t k = 0; k < a->n_lines; k++) {
        bool joined = false;

        for (size_t i = 0; i < a->lines[k].n; i++) {
            bool can = place(&d, g, a, s, a->lines[k].x[i], a->lines[k].y[i]);

            if (can && k > 0)
                g->cell[d.y / 4][d.x / 2] = 'o';
            else if (can)
                join(g, joined ? was : d, d);
            joined = can;
            was = d;
        }
    }
}

/* ---- the whole ---- */

struct scale
chart_scale(const struct chart *c)
{
    double low = INFINITY, high = -INFINITY;

    for (size_t k = 0; k < c->n_lines; k++)
        for (size_t i = 0; i < c->lines[k].n; i++) {
            double y = scale_clip(c->lines[k].y[i], c->log_y);

            low = fmin(low, y); /* not NaN */
            high = fmax(high, y);
        }
    for (size_t i = 0; i < c->n_columns; i++)
        if (scale_clip(c->columns[i], true) > 0) {
            low = 0;
            high = fmax(high, scale_clip(c->columns[i], false));
        }
    return low > high ? (struct scale){ .n = 0 }
                      : scale_of(low, high, c->log_y, c->whole_y);
}

static void
put_title(struct str *to, const struct chart *c)
{
    size_t used = c->about ? strlen(c->about) : 2 + strlen(c->y);

    str_esc_end(to, c->title, c->title_n ? c->title_n : strlen(c->title),
                used < TITLE_MAX - 20 ? TITLE_MAX - used : 20);
    str_adds(to, c->about ? c->about : ": ");
    if (c->about)
        str_addc(to, '\n');
    if (c->subtitle)
        str_addf(to, "%s\n\n", c->subtitle);
}

void
chart_text(struct str *to, const struct chart *c)
{
    struct grid g = { .utf8 = is_utf8() };
    struct scale s = chart_scale(c);

    if (c->title)
        put_title(to, c);
    for (size_t r = 0; r <= MAX_ROWS; r++)
        g.tick[r] = (double)NAN;
    if (!s.n) {
        str_addf(to, "%s: no numbers\n", c->y);
    } else {
        (c->n_columns ? put_columns : put_lines)(&g, c, &s);
        put_grid(to, &g, c, &s);
    }
    for (size_t k = 0; k < c->n_lines; k++)
        if (c->lines[k].says)
            str_addf(to, "%s%s\n", k ? "o " : "", c->lines[k].says);
    if (c->n_marks)
        str_addf(to, "\n%s\n", c->marked);
    chart_bars(to, c->marks, c->n_marks);
}
