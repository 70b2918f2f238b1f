/* SPDX-License-Identifier: ISC */
#include "core/hash_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define PIECE ((size_t)1 << 20)

int
hash_fd(struct hash *hash, int fd, const char *name, off_t at, struct err *err)
{
    char *buf = xmalloc(PIECE);
    ssize_t n;

    while ((n = pread(fd, buf, PIECE, at)) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        hash_add(hash, buf, (size_t)n);
        at += n;
    }
    free(buf);
    return n < 0 ? err_sys(err, EX_IOERR, "%s: cannot be read", name) : 0;
}

int
hash_path(struct hash *hash, const char *path, int depth, struct err *err)
{
    struct dirent **list;
    int n, fd, rc = file_is_dir(path, err);
    size_t size;

    if (rc < 0)
        return -1;
    if (rc == 0) {
        fd = file_open(path, &size, err);
        if (fd < 0)
            return -1;
        rc = hash_fd(hash, fd, path, 0, err);
        close(fd);
        return rc;
    }
    n = dir_list(&list, path, err);
    if (n < 0)
        return -1;
    rc = 0;
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        struct str inner = { 0 };
        uint8_t le[8];
        struct stat st;

        str_addf(&inner, "%s/%s", path, name);
        if (rc == 0 && stat(inner.s, &st) < 0) {
            if (file_status(errno) == EX_IOERR)
                rc = err_sys(err, EX_IOERR, "%s", inner.s);
        } else if (rc == 0 && ((S_ISDIR(st.st_mode) && depth > 0) ||
                               (S_ISREG(st.st_mode) &&
                                (str_ends(name, ".json") ||
                                 str_ends(name, ".safetensors"))))) {
            put_le64(le, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
            hash_add(hash, name, strlen(name) + 1);
            hash_add(hash, le, sizeof(le));
            rc = hash_path(hash, inner.s, depth - 1, err);
        }
        str_free(&inner);
    }
    dir_list_free(list, n);
    return rc;
}
