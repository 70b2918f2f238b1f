/* SPDX-License-Identifier: ISC */
/* Pictures of characters: bars, columns and curves that were drawn by hand; as
 * SVG: what is where, by its pixels; the properties of any scale. */
#include "core/chart.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tap.h"

static void
is(const struct str *s, const char *want, const char *what)
{
    tap_ok(s->n == strlen(want) && !memcmp(s->s, want, s->n), "%s", what);
    if (s->n != strlen(want) || memcmp(s->s, want, s->n) != 0)
        printf("# found\n%.*s\n# expected\n%s\n", (int)s->n, s->s, want);
}

static void
draw_columns(struct str *to, struct chart c, const double *v, size_t n)
{
    c.columns = v;
    c.n_columns = n;
    chart_text(to, &c);
}

static void
draw_lines(struct str *to, struct chart c, const struct chart_line *lines,
           size_t n)
{
    c.lines = lines;
    c.n_lines = n;
    chart_text(to, &c);
}

static void
test_bars(void)
{
    /* 40 columns for 8, so 5 for 1, 1/8 of one for 0.01 */
    const struct chart_mark bars[] = {
        { "eight", .v = 8 }, { "a name of thirty characters ..", .v = 1 },
        { "x", .v = 0.01 },  { "none", .v = 0 },
        { "nan", .v = NAN }, { "inf", .v = INFINITY }
    };
    /* 20 columns for 4 on each side */
    const struct chart_mark signed_bars[] = { { "a", .v = -4 },
                                              { "b", .v = 2 } };
    /* ten of two columns and one of one are 21 */
    const struct chart_mark wide_bars[] = {
        { "零一二三四五六七八九十é", .v = 1 }, { "한", .v = 1 }
    };
    struct str s = { 0 };

    setenv("LC_ALL", "C", 1);
    chart_bars(&s, bars, 6);
    is(&s,
       "eight                        8 "
       "########################################\n"
       "... thirty characters ..     1 #####\n"
       "x                         0.01 .\n"
       "none                         0\n"
       "nan                        nan\n"
       "inf                        inf\n",
       "bars, ASCII");
    str_clear(&s);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    chart_bars(&s, bars + 1, 2);
    is(&s,
       "... thirty characters ..     1 "
       "████████████████████████████████████████\n"
       "x                         0.01 ▍\n", /* 3.2 eighths */
       "bars, Unicode");
    str_clear(&s);
    chart_bars(&s, signed_bars, 2);
    is(&s,
       "a  -4 ████████████████████│\n"
       "b   2                     │██████████\n",
       "bars to both sides");
    str_clear(&s);
    chart_bars(&s, wide_bars, 2);
    is(&s,
       "...一二三四五六七八九十é  1 "
       "████████████████████████████████████████\n"
       "한                        1 "
       "████████████████████████████████████████\n",
       "bars whose labels have characters of two columns");
    str_free(&s);
}

static void
test_columns(void)
{
    const double v[] = { 3, 0, 6, NAN }, none[] = { 0, 0 };
    const double ones[] = { 1, 1, 1, 1 };
    struct chart near = { .x = "value",
                          .y = "elements",
                          .left = 1e6,
                          .right = 1e6 + 0.4,
                          .whole_y = true };
    struct chart axes = {
        .x = "value", .y = "elements", .right = 4, .whole_y = true
    };
    struct str s = { 0 };

    setenv("LC_ALL", "C", 1);
    draw_columns(&s, axes, v, 4); /* 16 wide each, 6 rows for 6 */
    is(&s,
       "elements\n"
       "6 +                                ################\n"
       "  |                                ################\n"
       "4 +                                ################\n"
       "  |################                ################\n"
       "2 +################                ################\n"
       "  |################                ################\n"
       "0 ++---------------+---------------+--------------+---------------+\n"
       "   0               1               2              3               4\n"
       "   value\n",
       "columns");
    str_clear(&s);
    draw_columns(&s, axes, none, 2);
    is(&s, "elements: no numbers\n", "no columns");
    str_clear(&s);
    draw_columns(&s, near, ones, 4);
    is(&s,
       "elements\n"
       "1 +################################################################\n"
       "  |################################################################\n"
       "  |################################################################\n"
       "  |################################################################\n"
       "  |################################################################\n"
       "  |################################################################\n"
       "0 ++---------------+---------------+--------------+---------------+\n"
       "   1000000     1000000.1       1000000.2      1000000.3   1000000.4\n"
       "   value\n",
       "columns whose edges differ in the eighth digit");
    str_free(&s);
}

static void
test_lines(void)
{
    const double x[] = { 1, 2, 3, 4 }, y[] = { 0, NAN, 10, 10 };
    const double at[] = { 4 }, dot[] = { 0 };
    const struct chart_line lines[] = { { x, y, .n = 4 }, { at, dot, .n = 1 } };
    struct chart axes = {
        .x = "step", .y = "loss", .left = 1, .right = 4, .whole_x = true
    };
    const double close[] = { 1e6, 1e6 + 1e-3, 1e6 + 2e-3, 1e6 + 4e-3 };
    struct str s = { 0 };

    setenv("LC_ALL", "C", 1);
    draw_lines(&s, axes, lines, 2);
    is(&s,
       "loss\n"
       "10 +                                          **********************\n"
       "   |\n"
       "   |\n"
       "   |\n"
       "   |\n"
       "   |\n"
       "   |\n"
       " 5 +\n" /* the other of the two rows in the middle would do */
       "   |\n"
       "   |\n"
       "   |\n"
       "   |\n"
       "   |\n"
       " 0 +*                                                              o\n"
       "   ++--------------------+--------------------+--------------------+\n"
       "    1                    2                    3                    4\n"
       "    step\n",
       "a line with a gap, and a point");
    str_clear(&s);
    draw_lines(&s, axes, &(struct chart_line){ x, close, .n = 4 }, 1);
    tap_ok(s.s && strstr(s.s, "1000000.001 +") && strstr(s.s, "1000000.004 +"),
           "numbers of an axis that differ in the tenth digit");
    str_free(&s);
}

static void
test_svg(void)
{
    /* the axes are 560 x 300 pixels from (70, 68); 0 to 10 has those ends */
    const double x[] = { 1, 2, 3, 5 }, y[] = { 0, NAN, 10, 5 };
    const struct chart_line line = { x, y, .n = 4, .says = "5 & 6" };
    const struct chart_line dot = { x, y, .n = 1 };
    const double columns[] = { 4, 0 };
    struct chart c = { .title = "a<b&\xc3\xa4\n",
                       .about = ": loss",
                       .x = "step",
                       .y = "loss",
                       .left = 1,
                       .right = 5,
                       .lines = &line,
                       .n_lines = 1 };
    char name[200];
    struct str s = { 0 };

    chart_svg(&s, &c);
    tap_ok(!strncmp(s.s, "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 40) &&
               !strcmp(s.s + s.n - 8, "\n</svg>\n"),
           "svg: one element");
    tap_ok(strstr(s.s, ">a&lt;b&amp;\xc3\xa4\\n: loss</text>") &&
               strstr(s.s, ">5 &amp; 6</text>"),
           "svg: text is escaped for a line and for XML");
    tap_ok(!!strstr(s.s, " points=\"70.0,368.0 350.0,68.0 630.0,218.0\"/>"),
           "svg: a line's points, a NaN is a gap");
    tap_ok(strstr(s.s, "<text x=\"12\" y=\"58\">loss</text>") &&
               strstr(s.s, "<text x=\"350\" y=\"404\" "
                           "text-anchor=\"middle\">step</text>"),
           "svg: the axes' names are at them");
    str_clear(&s);
    c.lines = &dot;
    chart_svg(&s, &c);
    tap_ok(!!strstr(s.s, " points=\"70.0,368.0 78.0,368.0\"/>"),
           "svg: a line of one point has 8 pixels");
    str_clear(&s);
    c.n_lines = 0;
    c.columns = columns;
    c.n_columns = 2;
    memset(name, 'x', sizeof(name) - 1);
    strcpy(name + sizeof(name) - 5, "tail");
    c.title = name;
    chart_svg(&s, &c);
    tap_ok(strstr(s.s, "<rect x=\"70.00\" y=\"68.00\" width=\"257.60\" "
                       "height=\"300.00\"/>") &&
               !strstr(s.s, "<rect x=\"350"),
           "svg: a column of 0.92 of its width, none for 0");
    tap_ok(strstr(s.s, ">...xxx") && strstr(s.s, "xtail: loss<"),
           "svg: of a long title the end");
    str_clear(&s);
    c.title = "\x01\xef\xbf\xbe\xef\xbf\xbf\xed\xa0\x80\xef\xbf\xbd";
    chart_grid_begin(&s, c.title, "", 1);
    chart_grid_add(&s, &c, 0);
    chart_grid_end(&s);
    tap_ok(!!strstr(s.s, "<title>\\x01\\u{fffe}\\u{ffff}\\xed\\xa0\\x80"
                         "\xef\xbf\xbd</title>"),
           "svg: what XML has no form for is escaped");
    str_free(&s);
}

static uint64_t seed = 1;

static double
uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

/* Is v one of 1, 2, 5 times a power of ten, or a multiple of such a step? */
static bool
is_round(double v, double step)
{
    double unit = pow(10, floor(log10(step) + 1e-9)), m = step / unit;

    return (fabs(m - 1) < 1e-6 || fabs(m - 2) < 1e-6 || fabs(m - 5) < 1e-6) &&
           fabs(v / step - round(v / step)) < 1e-3;
}

static bool
scale_holds(double low, double high, bool log, bool whole)
{
    struct scale s = scale_of(low, high, log, whole);
    double slack = 1e-9 * (fabs(s.low) + fabs(s.high));

    if (!(s.low < s.high) || s.n < 2 || s.n > SCALE_TICKS ||
        s.low > low + slack || s.high < high - slack ||
        s.log != (log && low > 0 && high >= 4 * low))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        double t = s.tick[i], part = scale_part(&s, t);
        double step = s.log ? t : s.tick[1] - s.tick[0];

        if (t < s.low - slack || t > s.high + slack ||
            (i && t <= s.tick[i - 1]) || !(part >= 0 && part <= 1) ||
            !is_round(t, step) || (whole && !s.log && t != floor(t)))
            return false;
    }
    return true;
}

/* An axis from a to b has ticks of equal steps, and none is missing. */
static bool
ticks_hold(double a, double b, bool whole)
{
    double t[SCALE_TICKS], slack = 1e-6 * (b - a), step;
    size_t n = scale_ticks(a, b, whole, t);

    if (n < 2 || (n < 3 && !whole) || n > 7)
        return false;
    step = t[1] - t[0];
    for (size_t i = 0; i < n; i++)
        if (!(t[i] >= a - slack && t[i] <= b + slack) ||
            !(fabs(t[i] / step - round(t[i] / step)) < 1e-3) ||
            (whole && t[i] != floor(t[i])) ||
            (i && fabs(t[i] - t[i - 1] - step) > slack))
            return false;
    return t[0] - step < a + slack && t[n - 1] + step > b - slack &&
           (is_round(step, step) || is_round(2 * step, 2 * step));
}

static void
test_ticks(void)
{
    size_t n_bad = 0;

    for (size_t i = 0; i < 100000; i++) {
        double unit = pow(10, 500 * uniform() - 250);
        double a = (uniform() - 0.5) * unit;

        n_bad += !ticks_hold(a, a + unit * pow(10, -3 * uniform()), false);
        a = floor(100 * uniform());
        n_bad += !ticks_hold(a, a + 1 + floor(uniform() * 1e6), true);
    }
    tap_ok(n_bad == 0, "ticks of an axis: %zu are not round", n_bad);
}

static void
test_scales(void)
{
    size_t n = 200000, n_bad = 0;

    for (size_t i = 0; i < n; i++) {
        double unit = pow(10, 600 * uniform() - 300);
        double a = (uniform() - 0.3) * unit;
        double b = a + unit * pow(10, -6 * uniform());
        bool log = i % 2, whole = i % 4 >= 2;

        if (log)
            a = fabs(a), b = a * pow(10, 20 * uniform());
        if (whole && !log)
            a = floor(uniform() * 10), b = a + 1 + floor(uniform() * 1e6);
        if (!isfinite(b) || b > 1e300 || a == 0)
            continue;
        if (!scale_holds(a, b, log, whole) && n_bad++ == 0)
            printf("# %.17g %.17g %d %d\n", a, b, log, whole);
    }
    tap_ok(n_bad == 0, "%zu scales: around the numbers, ticks round (%zu not)",
           n, n_bad);
    tap_ok(scale_holds(0, 0, false, false) && scale_holds(5, 5, true, true) &&
               scale_holds(-3, -3, false, false) &&
               scale_holds(-1e300, 1e300, false, false),
           "scales of one number, and of the largest");
    tap_ok(isnan(scale_clip(0, true)) && isnan(scale_clip(NAN, false)) &&
               isnan(scale_clip(-INFINITY, false)) &&
               scale_clip(-1e308, false) == -1e300 &&
               scale_clip(5e-324, true) == 1e-300,
           "what an axis shows");
}

/* Nothing is wider than 80 columns, whatever the numbers are. */
static void
test_width(void)
{
    const double kinds[] = { NAN,    INFINITY, -INFINITY, 1e308, -1e308,
                             5e-324, 0,        123456.7,  -1e-7 };
    /* the last: right - left is infinite */
    const double ends[][2] = { { -1e-300, 1e300 },
                               { 1, 1 + 0x1p-52 },
                               { -123456.78, -123456.77 },
                               { 0, 5e-324 },
                               { -1e308, 1e308 } };
    struct chart axes = { .x = "x", .y = "y" };
    struct chart_mark bars[300];
    double x[300], y[300];
    struct str s = { 0 };
    size_t widest = 0;

    for (int round = 0; round < 2000; round++) {
        size_t n = (size_t)(300 * uniform()), at = 0;

        setenv("LC_ALL", round % 2 ? "C" : "C.UTF-8", 1);
        axes.left = ends[round % 5][0];
        axes.right = ends[round % 5][1];
        for (size_t i = 0; i < n; i++) {
            x[i] = kinds[(size_t)(9 * uniform())];
            y[i] = round % 3 ? kinds[(size_t)(9 * uniform())]
                             : -123456.7 + 1e-9 * uniform();
            bars[i] = (struct chart_mark){ "\xc3\xa4 label, \n and its end",
                                           .v = y[i] };
        }
        chart_bars(&s, bars, n);
        draw_columns(&s, axes, y, n);
        draw_lines(&s, axes, &(struct chart_line){ x, y, .n = n }, 1);
        for (size_t i = 0; i < s.n; i++) {
            at += ((unsigned char)s.s[i] & 0xc0) != 0x80;
            widest = at > widest ? at : widest;
            at = s.s[i] == '\n' ? 0 : at;
        }
        str_clear(&s);
    }
    tap_ok(widest <= 81, "at most 80 columns (%zu)", widest - 1);
    str_free(&s);
}

int
main(void)
{
    test_bars();
    test_columns();
    test_lines();
    test_svg();
    test_ticks();
    test_scales();
    test_width();
    return tap_done();
}
