/* SPDX-License-Identifier: ISC */
/* What a file that is not safetensors seems to be. */
#include "core/format/st.h"

#include <string.h>
#include <strings.h>

struct magic {
    size_t offset, nbytes;
    const char *bytes, *what;
};

static const struct magic magics[] = {
    { 0, 22, "version https://git-lf", "a git-lfs pointer (run git lfs pull)" },
    { 0, 4, "PK\003\004", "a zip archive (PyTorch's .pth and .bin are)" },
    { 0, 4, "GGUF", "a GGUF file (llama.cpp's)" },
    { 0, 6, "\223NUMPY", "a numpy .npy file" },
    { 0, 3, "\037\213\010", "gzip-compressed (gunzip it first)" },
    { 0, 4, "\050\265\057\375", "zstd-compressed (unzstd it first)" },
    { 0, 6, "\3757zXZ", "xz-compressed (unxz it first)" },
    { 0, 4, "\211HDF", "an HDF5 file" },
    { 257, 5, "ustar", "a tar archive (unpack it first)" },
};

static bool
is_text(const uint8_t *head, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((head[i] < 0x20 || head[i] >= 0x7f) && head[i] != '\n' &&
            head[i] != '\r' && head[i] != '\t')
            return false;
    return true;
}

const char *
st_sniff(const void *bytes, size_t nbytes)
{
    const uint8_t *head = bytes;
    char s[32] = "";
    size_t i;

    for (i = 0; i < sizeof(magics) / sizeof(*magics); i++) {
        const struct magic *m = magics + i;

        if (nbytes >= m->offset + m->nbytes &&
            !memcmp(head + m->offset, m->bytes, m->nbytes))
            return m->what;
    }
    if (nbytes < 8)
        return NULL;
    /* Pickles of protocol 2 to 5 begin so; torch.save() before 1.6 wrote them.
     */
    if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && head[2])
        return "a pickle (PyTorch's old .pth and .bin are)";
    /* Markup begins with a word, in upper or lower case, after spaces. */
    i = memcmp(head, "\357\273\277", 3) ? 0 : 3;
    while (i < nbytes && head[i] && strchr(" \t\r\n", head[i]))
        i++;
    memcpy(s, head + i, nbytes - i < 31 ? nbytes - i : 31);
    if (!strncasecmp(s, "<!doctype html", 14) || !strncasecmp(s, "<html", 5))
        return "an HTML page (a login or error page, saved as the file)";
    if (!strncasecmp(s, "<?xml", 5))
        return "an XML document (an error message, saved as the file?)";
    if (s[0] == '{' && is_text(head, 8))
        return "JSON without the 8 bytes of its length (an index? name its directory)";
    for (i = 0; i < nbytes && head[i] == 0;)
        i++;
    if (i == nbytes && nbytes > 8)
        return "nothing but zeros (an unfinished download?)";
    return is_text(head, nbytes) ? "a text file" : NULL;
}
