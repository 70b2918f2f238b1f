/*
 * Which classes and functions a pickle may name.  None is ever looked up or
 * called here; but whoever loads the file with Python next may call it.
 */
#ifndef KVC_CONVERT_PICKLE_GLOBAL_H
#define KVC_CONVERT_PICKLE_GLOBAL_H

#include <stdbool.h>

/*
 * pickle_listed(): is module.name data, or makes data, and stands in
 * checkpoints?  pickle_dangerous(): is it no such thing, and of a module that
 * runs code or touches files?  A dotted name is looked at part by part.
 * pickle_allowed(): is it among the words of p->allowed?
 */
bool pickle_listed(const char *module, const char *name);
bool pickle_dangerous(const char *module, const char *name);
bool pickle_allowed(const char *const *allowed, const char *module,
                    const char *name);

#endif
