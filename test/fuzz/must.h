/* SPDX-License-Identifier: ISC */
/*
 * What a fuzzer is: a function of any bytes that ends in abort() where what
 * must hold does not.
 */
#ifndef TEST_FUZZ_MUST_H
#define TEST_FUZZ_MUST_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)   \
    do {                  \
        if (!(condition)) \
            abort();      \
    } while (0)

#endif
