/* Measures decisions of the memory store through C: nanoseconds per decision of each thread, medians of interleaved rounds. */
#include <polylimit.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, KEYS = 1000, THREADS = 2 };

struct face {
    const char *name;
    const char *quotas;
    int keys;
    int threads;
    int submitted;
    double took_ns[ROUNDS];
};

static polylimit_limiter *limiter;
static polylimit_completions *completions;
static char keys[KEYS][16];
static double span_ns;

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fail(const char *message) {
    fprintf(stderr, "bindings/c/bench: %s\n", message);
    exit(1);
}

static void decide(const char *key, int submitted) {
    char message[256];
    if (submitted) {
        polylimit_result result;
        polylimit_request request = {.size = sizeof request, .operation = POLYLIMIT_CHECK, .key = key, .cost = 1};
        request.key_length = strlen(key);
        if (polylimit_completions_submit(completions, limiter, &request, 1, &result, sizeof result, message,
                                         sizeof message) != POLYLIMIT_OK) {
            fail(message);
        }
        return;
    }
    polylimit_decision decision;
    decision.size = sizeof decision;
    if (polylimit_limiter_check(limiter, NULL, key, strlen(key), 1, &decision, message, sizeof message) !=
        POLYLIMIT_OK) {
        fail(message);
    }
}

static void *work(void *argument) {
    const struct face *face = argument;
    double *took = malloc(sizeof *took);
    double started = now_ns(), ended = started;
    long count = 0;
    while (ended - started < span_ns) {
        for (int at = 0; at < 1000; at++, count++) {
            decide(keys[count * 7919 % face->keys], face->submitted);
        }
        ended = now_ns();
    }
    *took = (ended - started) / (double)count;
    return took;
}

static double measure(const struct face *face) {
    char message[256];
    polylimit_option option = {"policy.bench", face->quotas};
    if (polylimit_limiter_open("memory:", &option, 1, NULL, &limiter, message, sizeof message) != POLYLIMIT_OK ||
        polylimit_completions_open(&completions, message, sizeof message) != POLYLIMIT_OK) {
        fail(message);
    }
    pthread_t threads[THREADS];
    double sum = 0;
    for (int at = 0; at < face->threads; at++) {
        pthread_create(&threads[at], NULL, work, (void *)face);
    }
    for (int at = 0; at < face->threads; at++) {
        void *took;
        pthread_join(threads[at], &took);
        sum += *(double *)took;
        free(took);
    }
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
    return sum / face->threads;
}

static int by_size(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **arguments) {
    const char *plenty = "1000000000/minute token_bucket", *none = "1/hour token_bucket", *window = "1000000000/minute";
    struct face faces[] = {
        {.name = "check, allowed", .quotas = plenty, .keys = 1, .threads = 1},
        {.name = "check, allowed", .quotas = plenty, .keys = 1, .threads = 2},
        {.name = "check, allowed", .quotas = plenty, .keys = KEYS, .threads = 1},
        {.name = "check, denied", .quotas = none, .keys = 1, .threads = 1},
        {.name = "check, sliding window", .quotas = window, .keys = 1, .threads = 1},
        {.name = "submit, known at once", .quotas = plenty, .keys = 1, .threads = 1, .submitted = 1},
    };
    enum { FACES = sizeof faces / sizeof *faces };
    span_ns = (count > 1 ? atof(arguments[1]) : 300) * 1e6;
    for (int at = 0; at < KEYS; at++) {
        snprintf(keys[at], sizeof keys[at], "user:%d", at);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < FACES; at++) {
            faces[at].took_ns[round] = measure(&faces[at]);
        }
    }
    printf("| memory store through C | keys | threads | ns |\n|---|---:|---:|---:|\n");
    for (int at = 0; at < FACES; at++) {
        qsort(faces[at].took_ns, ROUNDS, sizeof(double), by_size);
        printf("| %s | %d | %d | %.0f |\n", faces[at].name, faces[at].keys, faces[at].threads,
               faces[at].took_ns[ROUNDS / 2]);
    }
    printf("\nMedians of %d interleaved rounds. To repeat it: bindings/c/bench\n", ROUNDS);
    return 0;
}
