/*
 * What all pictures share: SVG, in pixels.
 */
#ifndef CORE_SVG_H
#define CORE_SVG_H

#include "core/str.h"

/* svg_begin() opens a picture; svg_end() closes it. */
void svg_begin(struct str *to, size_t width, size_t height);
void svg_end(struct str *to);

/* svg_name() appends a name from a file, escaped; of one of more characters
 * than 'max' the end alone, after "...". */
void svg_name(struct str *to, const char *name, size_t nbytes, size_t max);

/* svg_line_begin(), svg_line_to() a point, the next, .., svg_line_end(). */
void svg_line_begin(struct str *to);
void svg_line_to(struct str *to, double x, double y);
void svg_line_end(struct str *to);

#endif
