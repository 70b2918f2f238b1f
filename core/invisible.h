/*
 * Which characters a reader cannot see.
 */
#ifndef CORE_INVISIBLE_H
#define CORE_INVISIBLE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * invisible(): has a code point the property Default_Ignorable_Code_Point?
 * Joiners, variation selectors, fillers, tags and bidi marks have it, and code
 * points that Unicode reserves for more of them.  Text needs some of them: a
 * name does not.
 */
bool invisible(uint32_t code_point);

/* The version of Unicode that says so: "15.0". */
extern const char invisible_unicode[];

#endif
