/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/page.h"

#include <stdlib.h>

void
page_text(struct str *to, const char *s, size_t nbytes)
{
    struct str line = { 0 };

    for (size_t i = 0, k; i < nbytes; i += k) {
        for (k = 0; i + k < nbytes && s[i + k] != '\n' && s[i + k] != '\t';)
            k++;
        str_clear(&line);
        str_esc(&line, s + i, k);
        if (i + k < nbytes)
            str_adds(&line, s[i + k++] == '\n' ? "\u23ce" : "\u21e5");
        str_xml(to, line.s, line.n);
    }
    str_free(&line);
}

void
page_f32(struct str *to, float v)
{
    size_t at = to->n;

    for (int digits = 6; digits <= 9; digits++) {
        to->n = at;
        str_addf(to, "%.*g", digits, (double)v);
        if (strtof(to->s + at, NULL) == v)
            break;
    }
}

void
page_begin(struct str *to)
{
    str_adds(to, "<!DOCTYPE html>\n"
                 "<html lang=\"en\">\n<head>\n"
                 "<meta charset=\"utf-8\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\""
                 "default-src 'none'; style-src 'unsafe-inline'; "
                 "img-src data:\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, "
                 "initial-scale=1\">\n<title>");
}

/* In two parts, as C99 knows no longer strings than these. */
static const char style_page[] =
    ":root { color-scheme: light dark; --text: #1c1c1a; --back: #fff;\n"
    "  --soft: #62625d; --line: #dcdcd7; --box: #f6f6f3; --link: #0b57a4;\n"
    "  --hot: 226 106 0; }\n"
    "@media (prefers-color-scheme: dark) { :root { --text: #e6e6e1;\n"
    "  --back: #15171a; --soft: #a3a39c; --line: #363a41; --box: #1e2126;\n"
    "  --link: #7db8f0; --hot: 214 92 0; } }\n"
    "body { margin: 0 auto; padding: 1rem 1.2rem 5rem; max-width: 62rem;\n"
    "  font: 16px/1.5 system-ui, sans-serif; color: var(--text);\n"
    "  background: var(--back); }\n"
    "h1 { margin: .3em 0; font-size: 1.5rem; overflow-wrap: anywhere; }\n"
    "h2 { margin: 0; font-size: 1.25rem; overflow-wrap: anywhere; }\n"
    "h2 a, .up { color: inherit; }\n"
    "h3 { margin: 1.1rem 0 .2rem; font-size: .85rem; font-weight: 600;\n"
    "  color: var(--soft); }\n"
    "a { color: var(--link); text-decoration: none; }\n"
    "a:hover, a:focus { text-decoration: underline; }\n"
    ".label { font-weight: 400; }\n"
    ".up { float: right; font-size: .85rem; color: var(--soft); }\n"
    ".facts { display: flex; flex-wrap: wrap; gap: .1rem 1.6rem;\n"
    "  margin: .3rem 0; color: var(--soft); font-size: .9rem; }\n"
    ".facts div { overflow-wrap: anywhere; }\n"
    ".facts dt, .facts dd { display: inline; margin: 0; }\n"
    ".facts dd { color: var(--text); font-variant-numeric: tabular-nums; }\n"
    ".index { max-height: 75vh; overflow: auto; margin: 1rem 0 0;\n"
    "  border: 1px solid var(--line); border-radius: 6px; }\n"
    "table { border-collapse: collapse; width: 100%; font-size: .92rem;\n"
    "  font-variant-numeric: tabular-nums; }\n"
    "th { position: sticky; top: 0; background: var(--box);\n"
    "  font-weight: 600; color: var(--soft); }\n"
    "th, td { padding: .2rem .8rem; text-align: right; white-space: nowrap; }\n"
    "td { border-top: 1px solid var(--line); }\n"
    "th:last-child, td:last-child { text-align: left; width: 60%;\n"
    "  white-space: normal; overflow-wrap: anywhere; }\n";
static const char style_latents[] =
    "section { margin-top: 2.2rem; padding-top: 1rem;\n"
    "  border-top: 1px solid var(--line); content-visibility: auto;\n"
    "  contain-intrinsic-size: auto 60rem; }\n"
    "section:target { border-top: 3px solid rgb(var(--hot)); }\n"
    ".top { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; }\n"
    ".hist { margin: .6rem 0 0; font-size: .8rem; color: var(--soft); }\n"
    ".hist svg { display: block; height: 4.5rem; max-width: 100%; }\n"
    ".hist rect { fill: rgb(var(--hot)); }\n"
    ".lens { display: flex; flex: 1; flex-wrap: wrap; gap: 0 2rem; }\n"
    ".lens ol { flex: 1 1 12rem; margin: .4rem 0; padding: 0;\n"
    "  list-style: none; columns: 2 9rem; font-size: .85rem;\n"
    "  color: var(--soft); font-variant-numeric: tabular-nums; }\n"
    ".lens li { overflow-wrap: anywhere; break-inside: avoid; }\n"
    ".lens span, .x { font-family: ui-monospace, monospace; }\n"
    ".lens span { padding: 0 .2em; border-radius: 3px;\n"
    "  color: var(--text); background: var(--box); white-space: pre-wrap; }\n"
    ".plus::before, .minus::before { display: block; column-span: all;\n"
    "  font-weight: 600; }\n"
    ".plus::before { content: \"promotes\"; }\n"
    ".minus::before { content: \"suppresses\"; }\n"
    "p.x { position: relative; margin: 0; padding: .3rem 0 .3rem 5.2rem;\n"
    "  border-top: 1px solid var(--line); font-size: .85rem;\n"
    "  line-height: 1.7; white-space: pre-wrap; overflow-wrap: anywhere; }\n"
    "p.x::before { content: attr(data-value); position: absolute; left: 0;\n"
    "  width: 4.8rem; overflow: hidden; text-overflow: ellipsis;\n"
    "  color: var(--soft); font: .8rem/1.8 system-ui, sans-serif;\n"
    "  font-variant-numeric: tabular-nums; }\n"
    "p.x span { unicode-bidi: isolate; padding: .12em 0; }\n"
    ".p { outline: 1.5px solid rgb(var(--hot)); border-radius: 2px; }\n"
    "summary { padding: .3rem 0; cursor: pointer; font-size: .9rem;\n"
    "  color: var(--soft); border-top: 1px solid var(--line); }\n"
    ".images { display: flex; flex-wrap: wrap; gap: .8rem; }\n"
    "figure { margin: .3rem 0; width: 13rem; max-width: 100%; }\n"
    "figure svg { display: block; width: 100%; border-radius: 4px; }\n"
    "figure::after { content: attr(data-value); font-size: .8rem;\n"
    "  color: var(--soft); }\n"
    "figure rect { fill: rgb(var(--hot)); stroke: #fff; stroke-width: .03; "
    "}\n"
    "@media (max-width: 40rem) { .c { display: none; }\n"
    "  body { padding: .6rem .8rem 3rem; }\n"
    "  th, td { padding: .3rem .5rem; }\n"
    "  p.x { padding-left: 0; }\n"
    "  p.x::before { display: block; position: static; width: auto; }\n"
    "  .lens { flex-basis: 100%; }\n"
    "  figure { width: 46%; } }\n";

void
page_style(struct str *to)
{
    str_addf(to, "</title>\n<style>\n%s%s", style_page, style_latents);
    for (int i = 1; i <= 10; i++)
        str_addf(to,
                 "span.a%d { background: rgb(var(--hot) / %d%%); } "
                 "rect.a%d { fill-opacity: %d%%; }\n",
                 i, i * 6 + 4, i, i * 6);
    str_adds(to, "</style>\n</head>\n<body>\n");
}
