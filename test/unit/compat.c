/* SPDX-License-Identifier: ISC */
/* What stands for Linux's and glibc's own calls, by hand: the same with
 * -DTU_PORTABLE, where none of these is used. */
#include "core/compat.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "test/unit/tap.h"

static int
by_place(const void *a, const void *b, void *ctx)
{
    const int *place = ctx;

    return place[*(const int *)a] - place[*(const int *)b];
}

static void
test_library(void)
{
    int place[] = { 3, 0, 2, 1 }, v[] = { 0, 1, 2, 3 };
    static const char *const names[] = { "",          "layer.9",    "layer.9.x",
                                         "layer.10",  "layer.10.a", "layer.11",
                                         "layer.100", "m" };
    const char text[] = "a,b,c";
    bool good = true;

    sort_with(v, 4, sizeof(*v), by_place, place);
    tap_ok(!memcmp(v, (int[]){ 1, 3, 2, 0 }, sizeof(v)),
           "sort_with: by what ctx says");
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 8; j++) {
            int c = natural_order(names[i], names[j]);

            good &= (c > 0) == (i > j) && (c < 0) == (i < j);
        }
    tap_ok(good, "natural_order: layer.9 before layer.10");
    tap_ok(last_byte(text, ',', 5) == text + 3 &&
               last_byte(text, ',', 3) == text + 1 &&
               !last_byte(text, ',', 1) && !last_byte(text, 'a', 0),
           "last_byte");
    tap_ok(!strcmp(program_name(), "compat"), "program_name");
}

static atomic_uint word;

static void *
waiter(void *arg)
{
    (void)arg;
    while (atomic_load(&word) == 0)
        word_wait(&word, 0);
    atomic_fetch_add(&word, 1);
    word_wake(&word, 1);
    return NULL;
}

/* It would not end if a wake-up were lost. */
static void
test_words(void)
{
    pthread_t threads[3];
    int n_runs = 200;

    for (int i = 0; i < n_runs; i++) {
        atomic_store(&word, 0);
        for (int j = 0; j < 3; j++)
            if (pthread_create(&threads[j], NULL, waiter, NULL) != 0)
                return;
        if (i % 2)
            usleep(100);
        atomic_store(&word, 1);
        word_wake(&word, 3);
        for (unsigned n; (n = atomic_load(&word)) < 4;)
            word_wait(&word, n);
        for (int j = 0; j < 3; j++)
            pthread_join(threads[j], NULL);
    }
    tap_ok(true, "word_wait: %d times three threads, each woken", n_runs);
}

int
main(void)
{
    test_library();
    test_words();
    tap_ok(cpu_count() >= 1, "cpu_count: one at least");
    return tap_done();
}
