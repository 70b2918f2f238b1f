/*
 * Output folders: whole or not at all.
 *
 * A folder is filled under a hidden name beside its destination and gets its
 * own by one rename, which a folder that is there already refuses.  What lies
 * in it is flat: files made by core/out, no folders.
 *
 * Filled alone, it is ".NAME.tmp.HOST.PID.SERIAL".  Filled by several, at
 * once or one after the other, it is ".NAME.part", which stays until one of
 * them publishes it.
 * Source: the notes on network file systems in tensorutils(7).
 */
#ifndef CORE_OUTDIR_H
#define CORE_OUTDIR_H

#include <stdbool.h>

#include "core/err.h"

struct outdir;

/*
 * outdir_open() starts a folder that will be a child of 'parent', which is
 * made if it is missing.  'shared': ".NAME.part", made or joined.
 * 0, or -1 with 'err' set (EX_CANTCREAT).
 * Owner: the caller, until outdir_commit(), outdir_keep() or outdir_abort().
 */
int outdir_open(struct outdir **dir, const char *parent, const char *name,
                bool shared, struct err *err);

/* outdir_check_name(): as -o has it, "-" is standard output, and no folder
 * (TU_USAGE). */
int outdir_check_name(const char *path, struct err *err);

/* outdir_make() makes the folder 'path' if it is missing, not those above it;
 * a power cut does not take it, with all in it.  0, or -1 with 'err' set
 * (EX_CANTCREAT, EX_IOERR). */
int outdir_make(const char *path, struct err *err);

/* outdir_path() is where its files are to be made; dies with 'dir'. */
const char *outdir_path(const struct outdir *dir);

/* outdir_there(): is it still where it was made?  Another that fills a shared
 * folder, too, may have published it.  true where nobody can tell, as when a
 * server is gone. */
bool outdir_there(const struct outdir *dir);

/*
 * outdir_commit() makes the folder durable and visible as PARENT/NAME, the
 * name given here, and frees 'dir'.  'replace': what is there is exchanged for
 * it and removed, or, on errors, stays.  0, or -1 with 'err' set (EX_CANTCREAT:
 * exists already, or another has just published it) and the folder gone if it
 * was filled alone; only where the line says that the parent cannot be synced
 * and nothing was replaced is it there, whole, but a power cut may still take
 * its name.
 */
int outdir_commit(struct outdir *dir, const char *name, bool replace,
                  struct err *err);

/* outdir_replaceable(): is 'path' nothing that 'replace' would refuse?  A file
 * or link is no folder, one with folders in it was not made here, and a mount
 * point stays where it is: -1 with 'err' set (EX_CANTCREAT) tells so before the
 * work; outdir_commit() looks again. */
int outdir_replaceable(const char *path, struct err *err);

/*
 * outdir_keep() leaves the files of a folder filled alone in ".NAME.part" for
 * another run, in place of those of the same names, and frees 'dir'.  Hidden
 * ones are not finished and go.  It waits for another that is just removing
 * .NAME.part.  0, or -1 with 'err' set.
 */
int outdir_keep(struct outdir *dir, struct err *err);

/* outdir_was_quicker(): another has just published 'path'.  -1 with 'err' set
 * (EX_CANTCREAT). */
int outdir_was_quicker(const char *path, struct err *err);

/* outdir_abort() removes a folder filled alone; a shared one stays, but for
 * temporaries of this process. */
void outdir_abort(struct outdir *dir);

/* outdir_remove_empty() removes a shared folder that is empty, unless another
 * fills it, too (which some network file systems do not tell); false: it did
 * not.  'dir' is to be aborted either way. */
bool outdir_remove_empty(struct outdir *dir);

/* outdir_sweep() removes what runs that were killed left of PARENT/NAME, as
 * outdir_open() does. */
void outdir_sweep(const char *parent, const char *name);

/* outdir_part_path() appends PARENT/.NAME.part to 'path'. */
struct str;
void outdir_part_path(struct str *path, const char *parent, const char *name);

/* outdir_remove() removes a flat folder and the files in it; false: it is
 * still there. */
bool outdir_remove(const char *path);

/* outdir_drop_part() removes PARENT/.NAME.part, unless another fills it just
 * now: where locks are not kept, unless a file in it is under way. */
void outdir_drop_part(const char *parent, const char *name);

#endif
