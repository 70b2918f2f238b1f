/*
 * Patterns of modules that are no more than names, all of them looked up at
 * once: the module is read from its end, as far as any name has its characters.
 */
#ifndef CORE_FORMAT_PEFT_NAME_H
#define CORE_FORMAT_PEFT_NAME_H

#include <stddef.h>
#include <stdint.h>

#define PEFT_MAX_NAME 1024 /* bytes of a pattern that is taken for a name */

struct peft_name {
    char *reversed; /* malloc'ed */
    size_t place;   /* in the file */
};

/*
 * peft_name_read() is a pattern as a name, reversed: one of letters, digits,
 * '_', '-', '.', which takes any character, and punctuation after a backslash.
 * NULL if it is none, or longer than PEFT_MAX_NAME.  Owner: the caller, free().
 */
char *peft_name_read(const char *pattern);

/* peft_names_sort() comes once before peft_names_find(). */
void peft_names_sort(struct peft_name *names, size_t n);

/*
 * peft_names_find() is the least place of the names that take the module of
 * 'nbytes' of UTF-8, or its end after a dot; SIZE_MAX if there is none.  Adds
 * what it took to *steps, and gives up when it has more than 'max_steps'.
 */
size_t peft_names_find(const struct peft_name *names, size_t n,
                       const char *module, size_t nbytes, uint64_t *steps,
                       uint64_t max_steps);

#endif
