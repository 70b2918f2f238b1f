/* SPDX-License-Identifier: ISC */
#include "core/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/fd.h"
#include "core/map.h"
#include "core/str.h"

int
spill_open(struct spill *s, const char *dir, size_t nbytes, struct err *err)
{
    struct str name = { 0 };
    size_t n_free;

    *s = (struct spill){ .dir = dir, .nbytes = nbytes };
    /* one that never had a name, or (NFS and others) that loses it now */
    s->fd = file_unnamed(dir);
    if (s->fd < 0) {
        str_addf(&name, "%s/.spill.XXXXXX", dir);
        s->fd = mkostemp(name.s, O_CLOEXEC);
        if (s->fd >= 0 && unlink(name.s) < 0)
            spill_close(s);
        str_free(&name);
    }
    if (s->fd < 0)
        return err_sys(err, EX_CANTCREAT, "%s: no file can be made there", dir);
    n_free = fd_free(s->fd, nbytes);
    if (nbytes > n_free)
        err_set(err, EX_IOERR, "%s: %zu bytes are needed, %zu are free", dir,
                nbytes, n_free);
    else if (fd_reserve(s->fd, dir, nbytes, err) == 0)
        return 0;
    spill_close(s);
    return -1;
}

void
spill_close(struct spill *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

int
spill_write(const struct spill *s, const void *data, size_t nbytes,
            size_t offset, struct err *err)
{
    const char *from = data;

    while (nbytes > 0) {
        ssize_t done = pwrite(s->fd, from, nbytes, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_sys(err, EX_IOERR, "%s: scratch cannot be written",
                           s->dir);
        from += done;
        offset += (size_t)done;
        nbytes -= (size_t)done;
    }
    return 0;
}

int
spill_read(const struct spill *s, void *buf, size_t nbytes, size_t offset,
           struct err *err)
{
    if (file_pread(s->fd, s->dir, buf, nbytes, offset, err) == 0)
        return 0;
    err->status = EX_IOERR; /* nobody else can have made it shorter */
    return -1;
}

void
spill_drop(const struct spill *s, size_t offset, size_t nbytes)
{
    if (nbytes > 0 && file_punch(s->fd, (off_t)offset, nbytes) < 0)
        return; /* a file system without holes: it goes with the file */
}
