/* SPDX-License-Identifier: ISC */
/*
 * What Linux has and other systems, or their C libraries, may lack, with what
 * they do instead.  With -DTU_PORTABLE nothing of Linux is used, as on the BSDs
 * and macOS, and all tests pass (make check-compilers COMPILERS=portable).
 * ON_LINUX is for a file that is Linux's alone.
 */
#ifndef CORE_COMPAT_H
#define CORE_COMPAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __APPLE__
#include <sys/random.h> /* getentropy(), of unistd.h elsewhere */
#endif

#if defined(__linux__) && !defined(TU_PORTABLE)
#define ON_LINUX 1
#else
#define ON_LINUX 0
#endif

/* word_wait() sleeps while *word is 'value', until word_wake(); it may end
 * before.  Of threads of one process: a futex, else one condition for all. */
void word_wait(atomic_uint *word, unsigned value);
void word_wake(atomic_uint *word, int n_waiters);

/* cpu_count() is how many CPUs the process may use, 1 at least. */
int cpu_count(void);

/* amx_request() asks the system for the registers of AMX: are they granted?
 * 8 KiB a thread, which Linux saves for those that have asked. */
bool amx_request(void);

/* sort_with() is qsort(3), 'ctx' passed to 'compare'.  glibc's qsort_r() and
 * that of the older BSDs differ in their arguments.  Equal ones are in any
 * order.  'compare' may not sort. */
void sort_with(void *items, size_t n, size_t size,
               int (*compare)(const void *a, const void *b, void *ctx),
               void *ctx);

/* program_name() is argv[0] without its directory. */
const char *program_name(void);

/* last_byte() is where c is last in n bytes, or NULL: memrchr(3). */
void *last_byte(const void *s, int c, size_t n);

/* natural_order() compares names, numbers in them by their value: glibc's
 * strverscmp(3) where no number begins with a zero. */
int natural_order(const char *a, const char *b);

/* file_unnamed() opens a file in 'dir' that no name leads to: a descriptor, or
 * -1 with errno. */
int file_unnamed(const char *dir);

/* file_allocate() reserves the file's first bytes: 0, or an errno value,
 * EOPNOTSUPP where nothing can be reserved. */
int file_allocate(int fd, size_t nbytes);

/* file_punch() gives the disk back what n bytes took: -1 where it cannot. */
int file_punch(int fd, off_t offset, size_t nbytes);

/* file_is_hole(): are these bytes of a file in no block of a disk, and so 0?
 * False where that is unknown.  Moves the descriptor's offset. */
bool file_is_hole(int fd, size_t offset, size_t nbytes);

/* file_write_back() has the disk begin to write these bytes; a hint. */
void file_write_back(int fd, size_t offset, size_t nbytes);

/* file_sync_all() writes all that the file's system holds back. */
void file_sync_all(int fd);

/* file_will_read(), file_in_order(): hints that these bytes are next, and that
 * all of it will be read from its begin on. */
void file_will_read(int fd, off_t offset, size_t nbytes);
void file_in_order(int fd);

/* file_direct(): reads from now on pass by the page cache, or fail. */
void file_direct(int fd);

/* pread_cached() is a pread() that gives only what is in memory, -1 if that is
 * nothing, or unknown. */
ssize_t pread_cached(int fd, void *to, size_t nbytes, off_t offset);

/* pipe_enlarge() asks for a pipe of that many bytes; pipe_lend() passes it the
 * pages of memory that will not change: bytes, or -1. */
void pipe_enlarge(int fd, int nbytes);
ssize_t pipe_lend(int fd, const struct iovec *v, size_t n);

/* remove_entries() unlinks all names in a directory: how many went.  For signal
 * handlers: on Linux it takes no memory. */
int remove_entries(int dir_fd);

/* pages_huge() asks for large pages, pages_drop() gives back those of a file
 * that is mapped; hints. */
void pages_huge(void *p, size_t nbytes);
void pages_drop(void *p, size_t nbytes);

#endif
