/*
 * An HTTP server with one thread and epoll, whose requests are limited by polylimit: decisions are submitted with their
 * connection as the tag, and those that were not known at once are drained when the completions' descriptor is readable.
 */
#include <sys/epoll.h>

#include "../c-threaded/http.h"

enum { EVENTS = 64 };

struct connection {
    int client;
    /* Its decision is on its way: it must not be freed before that has come. */
    int pending;
    int ended;
    size_t length;
    char request[HTTP_REQUEST];
};

static polylimit_limiter *limiter;
static polylimit_completions *completions;
static int events;

static void watch(int descriptor, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = what}};
    if (epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) != 0) {
        fail("a descriptor cannot be watched");
    }
}

static void end(struct connection *connection) {
    if (!connection->ended) {
        connection->ended = 1;
        close(connection->client);
    }
    if (!connection->pending) {
        free(connection);
    }
}

/* A response is short: a client that does not even take that is given up. */
static void answer(struct connection *connection, const polylimit_result *result) {
    char response[HTTP_RESPONSE];
    size_t length = result->status == POLYLIMIT_OK ? respond(limiter, &result->answer.decision, response)
                                                   : respond_failure(result->message, response);
    connection->length = 0;
    if (send(connection->client, response, length, MSG_NOSIGNAL) != (ssize_t)length) {
        end(connection);
    }
}

static void decide(struct connection *connection) {
    char key[HTTP_KEY];
    polylimit_result result;
    polylimit_request request = {.size = sizeof request, .operation = POLYLIMIT_CHECK, .cost = 1};
    key_of(connection->request, key);
    request.key = key;
    request.key_length = strlen(key);
    result.status = polylimit_completions_submit(completions, limiter, &request, (uint64_t)(uintptr_t)connection,
                                                 &result, sizeof result, result.message, sizeof result.message);
    if (result.status == POLYLIMIT_PENDING) {
        connection->pending = 1;
    } else {
        answer(connection, &result);
    }
}

static void drain(void) {
    polylimit_result results[EVENTS];
    char message[256];
    size_t count = 0;
    if (polylimit_completions_drain(completions, results, sizeof *results, EVENTS, &count, message, sizeof message) !=
        POLYLIMIT_OK) {
        fail(message);
    }
    for (size_t at = 0; at < count; at++) {
        struct connection *connection = (struct connection *)(uintptr_t)results[at].tag;
        connection->pending = 0;
        if (connection->ended) {
            end(connection);
        } else {
            answer(connection, &results[at]);
        }
    }
}

static void accept_client(int listener) {
    int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) {
        return;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        fail("there is no memory");
    }
    connection->client = client;
    watch(client, connection);
}

static void receive(struct connection *connection) {
    size_t room = sizeof connection->request - 1 - connection->length;
    ssize_t count = recv(connection->client, connection->request + connection->length, room, 0);
    if (count <= 0) {
        end(connection);
        return;
    }
    connection->length += (size_t)count;
    connection->request[connection->length] = 0;
    if (strstr(connection->request, "\r\n\r\n") && !connection->pending) {
        decide(connection);
    }
}

int main(void) {
    char message[256];
    limiter = open_demo();
    if (polylimit_completions_open(&completions, message, sizeof message) != POLYLIMIT_OK) {
        fail(message);
    }
    int listener = listen_on_port(SOCK_STREAM | SOCK_NONBLOCK);
    events = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, &listener);
    watch(polylimit_completions_fd(completions), &completions);
    for (;;) {
        struct epoll_event ready[EVENTS];
        int count = epoll_wait(events, ready, EVENTS, -1);
        /* Those drained last: a connection may be freed then, of which nothing may follow. */
        int finished = 0;
        for (int at = 0; at < count; at++) {
            void *what = ready[at].data.ptr;
            if (what == &listener) {
                accept_client(listener);
            } else if (what == &completions) {
                finished = 1;
            } else {
                receive(what);
            }
        }
        if (finished) {
            drain();
        }
    }
}
