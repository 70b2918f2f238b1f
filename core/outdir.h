/* SPDX-License-Identifier: ISC */
/*
 * Output directories: whole or not at all.
 *
 * A directory is filled under a hidden name next to its destination and gets
 * its own by one rename(2).  It is flat: files made by core/out, no
 * directories.
 *
 * Filled by one process, it is ".NAME.tmp.HOST.PID.SERIAL".  Filled by several,
 * at once or one after the other, it is ".NAME.part", which stays until one of
 * them publishes it.  There are no locks: publishing second is an error, and
 * who still fills .NAME.part then has none.
 *
 * To replace a directory, it is renamed to ".NAME.old" first and removed last.
 * The next run that finds .NAME.old restores it where NAME is missing, and
 * otherwise removes it.
 * Source: the notes on network file systems in tensorutils(7).
 */
#ifndef CORE_OUTDIR_H
#define CORE_OUTDIR_H

#include <stdbool.h>

#include "core/err.h"
#include "core/str.h"

struct outdir;

/*
 * outdir_open() starts a directory that will be a child of 'parent', which is
 * made if it is missing.  'shared': ".NAME.part", new or as others left it.
 * 0; or 1 where another run has published that meanwhile, with 'err' set
 * (EX_TEMPFAIL); or -1 with 'err' set (EX_CANTCREAT, EX_IOERR).
 * Owner: the caller, until outdir_commit(), outdir_keep() or outdir_abort().
 */
int outdir_open(struct outdir **dir, const char *parent, const char *name,
                bool shared, struct err *err);

/* outdir_path() is where its files are to be made; dies with 'dir'. */
const char *outdir_path(const struct outdir *dir);

/* outdir_is_gone(): has another run published or removed a shared directory?
 * false where that cannot be known, as when a server does not answer. */
bool outdir_is_gone(const struct outdir *dir);

/*
 * outdir_commit() makes the directory durable and visible as PARENT/NAME, the
 * name given here, and frees 'dir'.  'replace': an existing one is replaced.
 * 0; or 1 where another run was first, with 'err' set (EX_TEMPFAIL); or -1 with
 * 'err' set (EX_CANTCREAT, EX_IOERR).  One that was filled alone is then
 * removed; only where the parent cannot be synced is it visible, whole, but a
 * power cut may still take its name.  1, too, where an NFS server's answer was
 * lost: then it is visible.
 */
int outdir_commit(struct outdir *dir, const char *name, bool replace,
                  struct err *err);

/* outdir_second() sets the error of a run that came second: -1, EX_TEMPFAIL. */
int outdir_second(const char *path, struct err *err);

/*
 * outdir_keep() moves the files of a directory filled alone to ".NAME.part" for
 * another run, over those of the same names, and frees 'dir'.  Hidden ones,
 * which are not finished, are removed.  0, or -1 with 'err' set.
 */
int outdir_keep(struct outdir *dir, struct err *err);

/* outdir_abort() removes a directory filled alone, and leaves a shared one.
 * NULL is fine. */
void outdir_abort(struct outdir *dir);

/* outdir_replaceable(): 0 unless 'replace' would be refused: a file or link is
 * no directory, one with directories in it was not made here, a mount point
 * cannot be renamed, and, but in a run's 'own', no file in it has been read
 * (core/inuse.h).  -1 with 'err' set (EX_CANTCREAT, TU_USAGE) says so before
 * the work; outdir_commit() looks again at the former. */
int outdir_replaceable(const char *path, bool own, struct err *err);

/* outdir_sweep() removes what runs that were killed left of PARENT/NAME, and
 * restores it from .NAME.old, as outdir_open() does. */
void outdir_sweep(const char *parent, const char *name);

/* outdir_part_path() appends PARENT/.NAME.part to 'path'.  outdir_drop_part()
 * removes it, whoever fills it. */
void outdir_part_path(struct str *path, const char *parent, const char *name);
void outdir_drop_part(const char *parent, const char *name);

/* outdir_check_name(): for -o, "-" is standard output, and no directory
 * (TU_USAGE). */
int outdir_check_name(const char *path, struct err *err);

/* outdir_make() makes the directory 'path' and those above it, where they are
 * missing, and their names durable; *n_old is how many bytes of 'path' were
 * there before, or n_old is NULL.  0, or -1 with 'err' set (EX_CANTCREAT,
 * EX_IOERR).  outdir_unmake() removes what it made, as far as that is empty. */
int outdir_make(const char *path, size_t *n_old, struct err *err);
void outdir_unmake(const char *path, size_t n_old);

/*
 * outdir_claim() says that a run will write files of these names in 'dir', so
 * that no input and no other output can be one of them (core/inuse.h).
 * 'resumed': the run reads those of its earlier part, and has read the state.
 * 0, or -1 with 'err' set (TU_USAGE).
 */
#define OUTDIR_STATE "state.safetensors"
int outdir_claim(const char *dir, const char *const *names, size_t n,
                 bool resumed, struct err *err);

/*
 * outdir_lock() makes the directory of a run that adds files to it step by
 * step, as outdir_make(), and locks it, where its file system has locks: *lock
 * is closed to unlock it, or -1.  0, or -1 with 'err' set (EX_CANTCREAT,
 * EX_IOERR): another 'run', as "train", is running there, and nothing of it is
 * this run's to remove (*n_old is SIZE_MAX), or it cannot be written.
 */
int outdir_lock(const char *dir, const char *run, int *lock, size_t *n_old,
                struct err *err);

/*
 * A directory that appears whole or not at all, at any path: outdir_at_open()
 * fails if it exists and 'flags' have no OUT_FORCE (EX_CANTCREAT), else files
 * are made in outdir_path(f->dir).  With OUT_OWN, too, it is the run's own:
 * what has been read is not looked for in it, as an earlier state of the run
 * may have had the inode of a file there.
 */
struct outdir_at {
    struct outdir *dir;
    char *name;
    int flags;
};
int outdir_at_open(struct outdir_at *f, const char *path, int flags,
                   struct err *err);
int outdir_at_commit(struct outdir_at *f, struct err *err);
void outdir_at_abort(struct outdir_at *f);

#endif
