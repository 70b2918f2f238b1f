/* SPDX-License-Identifier: ISC */
/*
 * Read-only files: mapped whole for random access (weights), or read in
 * pieces (headers, streaming passes, standard input).
 */
#ifndef CORE_MAP_H
#define CORE_MAP_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/str.h"

struct map {
    const uint8_t *data; /* [size], page-aligned; NULL when size is 0 */
    size_t size;
};

/*
 * map_open() maps a regular file for reading.  0, or -1 with 'err' set:
 * EX_NOINPUT (not there, no permission, not a regular file), EX_IOERR (that
 * many files are open already, too).
 * Owner: the caller, until map_close().  A file that is cut short while
 * mapped ends the program by SIGBUS (core/tool.c makes that a message).
 */
int map_open(struct map *map, const char *path, struct err *err);
void map_close(struct map *map); /* a zeroed struct is fine */

/* map_fd() maps the first 'nbytes' > 0 of what is open for reading, 'name' in
 * messages; NULL with 'err' set, EX_SOFTWARE where there is no room for them.
 * Owner: the caller, munmap(). */
void *map_fd(int fd, size_t nbytes, const char *name, struct err *err);

/* map_cached(): is the page of a mapped file at 'p' in memory?  False where
 * that is unknown.  map_will_read() is a hint that these bytes of it are next,
 * map_was_read() that they are no more needed: they leave this process, and so
 * do those just before, which a fault nearby has mapped once more. */
bool map_cached(const void *p);
void map_will_read(const void *p, size_t nbytes);
void map_was_read(const struct map *map, const void *p, size_t nbytes);

/* file_open() opens a regular file for reading and gives its size; an fd or
 * -1 with 'err' set as for map_open(). */
int file_open(const char *path, size_t *size, struct err *err);

/* file_status() is the exit status of an open(2) or opendir(3) that failed so:
 * EX_NOINPUT, or EX_IOERR where the file is not to blame. */
int file_status(int e);

/*
 * file_pread() reads exactly 'nbytes' at 'offset', whatever signals and short
 * reads come between.  0, or -1 with 'err' set (EX_IOERR; a file that ends
 * before that: EX_DATAERR).
 */
int file_pread(int fd, const char *path, void *buf, size_t nbytes,
               size_t offset, struct err *err);

/*
 * file_open_any() opens a pipe or device, too, and does not wait for a pipe's
 * writer: file_wait() does, and for data, until it is time to stop
 * (EX_TEMPFAIL).
 */
int file_open_any(const char *path, struct err *err);
int file_wait(int fd, struct err *err);

/* file_read_full() reads 'nbytes' of what file_open_any() opened, fewer at its
 * end alone; -1 with 'err' set. */
ssize_t file_read_full(int fd, const char *name, void *to, size_t nbytes,
                       struct err *err);

/*
 * file_read_all() appends a whole file, or standard input for "-", to 'str';
 * a pipe or device, such as a shell's <(command), will do as well.
 * At most 'max' bytes: a longer file is EX_DATAERR.
 */
int file_read_all(const char *path, size_t max, struct str *str,
                  struct err *err);

/* file_read_regular() is the same for what can be a regular file alone: a FIFO
 * in its place is EX_NOINPUT, and nothing to wait for. */
int file_read_regular(const char *path, size_t max, struct str *str,
                      struct err *err);

/* file_missing(): does 'path' not exist?  False where that is unknown (a
 * directory without permission, a failing disk): opening it gives the error. */
bool file_missing(const char *path);

/* file_split(): the FILE of "FILE:TENSOR" or "FILE@LAYER", with *rest after
 * the last 'mark' of 'spec'.  NULL where there is no mark, or a file of the
 * whole name.  Owner: the caller, free(). */
char *file_split(const char *spec, char mark, const char **rest);

/* file_cut_layer() is LAYER, and cuts it off "FILE@LAYER": 0 to 999999999, all
 * digits; -1 where it is none, or a file of the whole name is there. */
int64_t file_cut_layer(char **path);

/* file_target() is what a writer that opens 'path' makes or replaces: links are
 * followed, also to a file that does not exist.  NULL with errno set.  Owner:
 * the caller, free(). */
char *file_target(const char *path);

/* file_same(): do both paths name one file or directory, or would they, where
 * nothing is there yet?  NULL names none, "-" is a stream, and a device
 * may be written twice where it is spelled in two ways. */
bool file_same(const char *a, const char *b);

/* file_is_in(): is what 'path' names, or would make, in 'dir' or below it,
 * as it is spelled or where its links lead? */
bool file_is_in(const char *path, const char *dir);

/* file_is_dir(): 1, 0 (or nothing is there), or -1 with 'err' set
 * (EX_NOINPUT, EX_IOERR) where that is unknown. */
int file_is_dir(const char *path, struct err *err);

/*
 * dir_next() is the next entry of the directory 'path', "." and ".." among
 * them: 1, 0 at the end, or -1 with 'err' set (EX_IOERR), which readdir(3)
 * alone does not distinguish.
 */
int dir_next(DIR *dir, const char *path, struct dirent **entry,
             struct err *err);

/* dir_list() lists a directory's entries whose names do not begin with a dot,
 * by the bytes of these: how many, or -1 with 'err' set (EX_NOINPUT, EX_IOERR).
 * Owner: the caller, until dir_list_free(). */
int dir_list(struct dirent ***list, const char *path, struct err *err);
void dir_list_free(struct dirent **list, int n);

/* read_some() is read(2) that continues after EINTR. */
long read_some(int fd, void *buf, size_t nbytes);

#endif
