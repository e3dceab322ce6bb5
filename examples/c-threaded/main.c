/*
 * An HTTP server with a thread for each connection, whose requests are limited by polylimit: each thread waits for its own
 * decision.
 */
#include <pthread.h>

#include "http.h"

static polylimit_limiter *limiter;

static size_t decide(const char *request, char response[HTTP_RESPONSE]) {
    char key[HTTP_KEY], message[256];
    polylimit_decision decision = {.size = sizeof decision};
    key_of(request, key);
    if (polylimit_limiter_check(limiter, NULL, key, strlen(key), 1, &decision, message, sizeof message) !=
        POLYLIMIT_OK) {
        return respond_failure(message, response);
    }
    return respond(limiter, &decision, response);
}

/* Serves one connection until the client ends it. */
static void *serve(void *argument) {
    int client = (int)(intptr_t)argument;
    char request[HTTP_REQUEST], response[HTTP_RESPONSE];
    size_t length = 0;
    for (;;) {
        ssize_t count = recv(client, request + length, sizeof request - 1 - length, 0);
        if (count <= 0) {
            break;
        }
        length += (size_t)count;
        request[length] = 0;
        if (!strstr(request, "\r\n\r\n")) {
            continue;
        }
        size_t answer = decide(request, response);
        if (send(client, response, answer, MSG_NOSIGNAL) != (ssize_t)answer) {
            break;
        }
        length = 0;
    }
    close(client);
    return NULL;
}

int main(void) {
    limiter = open_demo();
    int listener = listen_on_port(SOCK_STREAM);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        pthread_t thread;
        if (client < 0) {
            continue;
        }
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client) != 0) {
            close(client);
            continue;
        }
        pthread_detach(thread);
    }
}
