/* The provider of the benchmark: answers Chat Completions as fast as one core can.
 *
 *     cc -O2 -o upstream upstream.c && ./upstream CHUNKS GROUP PORT:PACE_US [PORT:PACE_US ...]
 *
 * One thread, epoll, HTTP/1.1 with keep-alive, loopback only. A request whose body holds
 * `"stream":true` gets CHUNKS text events (each one HTTP chunk), any other a small whole answer.
 * GROUP events leave in one write, and PACE_US microseconds pass between two writes of one stream;
 * each port has a pace of its own. Port 0 takes a free one. Prints the ports, then serves until it
 * is ended. Knows no more of HTTP than the programs of the benchmark send.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX (1 << 20)
#define PORTS_MAX 8
#define EVENTS_MAX 512

struct text { char *at; size_t size, room; };

struct port { int fd; long pace_ns; struct conn *first, *last; };

struct conn {
    int fd;
    struct port *port;
    char *request;
    size_t received, room;
    const struct text *out; /* what is being written */
    size_t written;
    int next_group;         /* of the stream under way; -1: none */
    long due_ns;            /* when the next group may leave */
    int is_queued;
    struct conn *next, *prev;
};

static struct text whole, *groups;
static int groups_count, poller, timer;
static struct port ports[PORTS_MAX];
static int ports_count;

static void fail(const char *what) { perror(what); exit(1); }

static long now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* ------------------------------------------------------------------ the answers, made once */

static void add(struct text *text, const char *data, size_t size) {
    if (text->size + size > text->room) {
        text->room = (text->size + size) * 2;
        text->at = realloc(text->at, text->room);
        if (text->at == NULL) fail("realloc");
    }
    memcpy(text->at + text->size, data, size);
    text->size += size;
}

static void add_text(struct text *text, const char *data) { add(text, data, strlen(data)); }

static void add_chunk(struct text *text, const char *data) {
    char size[32];
    snprintf(size, sizeof size, "%zx\r\n", strlen(data));
    add_text(text, size);
    add_text(text, data);
    add_text(text, "\r\n");
}

#define HEAD "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2029 00:00:00 GMT\r\nserver: upstream\r\n" \
    "x-request-id: req_0123456789abcdef\r\nx-ratelimit-remaining-requests: 9999\r\n"
#define ENVELOPE "\"id\":\"chatcmpl-0123456789abcdef01234567\",\"object\":\"chat.completion%s\"," \
    "\"created\":1764547200,\"model\":\"gpt-4o-mini-2024-07-18\"," \
    "\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\","
#define USAGE "\"usage\":{\"prompt_tokens\":180,\"completion_tokens\":%d,\"total_tokens\":%d," \
    "\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0}," \
    "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0," \
    "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"

static void make_whole(void) {
    char body[4096], head[1024];
    snprintf(body, sizeof body,
        "{" ENVELOPE "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
        "\"The sky looks blue because air scatters short waves of light more than long ones: blue "
        "light comes to the eye from every side, red light only from where the sun stands. At "
        "dusk the way through the air is longer, most of the blue is gone, and red is left.\","
        "\"refusal\":null,\"annotations\":[]},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        USAGE "}", "", 62, 242);
    snprintf(head, sizeof head, HEAD "content-type: application/json\r\ncontent-length: %zu\r\n\r\n",
        strlen(body));
    add_text(&whole, head);
    add_text(&whole, body);
}

static void make_stream(int chunks, int group) {
    char event[2048];
    groups_count = (chunks + group - 1) / group;
    groups = calloc((size_t)groups_count, sizeof *groups);
    if (groups == NULL) fail("calloc");
    add_text(&groups[0], HEAD "content-type: text/event-stream; charset=utf-8\r\n"
        "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
    snprintf(event, sizeof event, "data: {" ENVELOPE "\"choices\":[{\"index\":0,\"delta\":"
        "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
        "\"finish_reason\":null}],\"usage\":null}\n\n", ".chunk");
    add_chunk(&groups[0], event);
    for (int at = 0; at < chunks; at++) {
        snprintf(event, sizeof event, "data: {" ENVELOPE "\"choices\":[{\"index\":0,\"delta\":"
            "{\"content\":\" word%03d\"},\"logprobs\":null,\"finish_reason\":null}],"
            "\"usage\":null}\n\n", ".chunk", at);
        add_chunk(&groups[at / group], event);
    }
    struct text *last = &groups[groups_count - 1];
    snprintf(event, sizeof event, "data: {" ENVELOPE "\"choices\":[{\"index\":0,\"delta\":{},"
        "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n\n", ".chunk");
    add_chunk(last, event);
    snprintf(event, sizeof event, "data: {" ENVELOPE "\"choices\":[]," USAGE "}\n\n", ".chunk",
        chunks, chunks + 180);
    add_chunk(last, event);
    add_chunk(last, "data: [DONE]\n\n");
    add_text(last, "0\r\n\r\n");
}

/* ------------------------------------------------------------------ connections */

/* Streams that wait for their next group: one line a port, since each port has one pace. */
static void enqueue(struct conn *c, long due_ns) {
    struct port *port = c->port;
    c->due_ns = due_ns;
    c->is_queued = 1;
    c->next = NULL;
    c->prev = port->last;
    if (port->last != NULL) port->last->next = c; else port->first = c;
    port->last = c;
}

static void dequeue(struct conn *c) {
    struct port *port = c->port;
    if (c->prev != NULL) c->prev->next = c->next; else port->first = c->next;
    if (c->next != NULL) c->next->prev = c->prev; else port->last = c->prev;
    c->is_queued = 0;
}

static void drop(struct conn *c) {
    if (c->is_queued) dequeue(c);
    close(c->fd);
    free(c->request);
    free(c);
}

/* Write what is due; 0 if the connection is gone. */
static int push(struct conn *c) {
    while (c->out != NULL) {
        ssize_t sent = send(c->fd, c->out->at + c->written, c->out->size - c->written, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return 1; /* EPOLLOUT comes: edges are watched */
        if (sent < 0) { drop(c); return 0; }
        c->written += (size_t)sent;
        if (c->written < c->out->size) continue;
        c->out = NULL;
        c->written = 0;
        if (c->next_group < 0) break;
        if (++c->next_group == groups_count) { c->next_group = -1; break; }
        enqueue(c, now_ns() + c->port->pace_ns);
    }
    return 1;
}

/* The length of the whole request at the start of what was received; 0 while it is not whole. */
static size_t whole_request(const struct conn *c, const char **body) {
    const char *end = memmem(c->request, c->received, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    size_t length = 0;
    for (const char *at = c->request; at < end; at++) {
        if (*at == '\n' && strncasecmp(at + 1, "content-length:", 15) == 0) {
            length = strtoul(at + 16, NULL, 10);
            break;
        }
    }
    *body = end + 4;
    size_t size = (size_t)(*body - c->request) + length;
    return size <= c->received ? size : 0;
}

static int answer(struct conn *c) {
    const char *body;
    size_t size = whole_request(c, &body);
    if (size == 0 || c->out != NULL || c->next_group >= 0) return 1;
    size_t body_size = (size_t)(c->request + size - body);
    int is_stream = memmem(body, body_size, "\"stream\":true", 13) != NULL;
    memmove(c->request, c->request + size, c->received - size);
    c->received -= size;
    c->out = is_stream ? &groups[0] : &whole;
    c->next_group = is_stream ? 0 : -1;
    return push(c);
}

static void receive(struct conn *c) {
    for (;;) {
        if (c->received + 1 >= c->room) {
            if (c->room >= REQUEST_BYTES_MAX) { drop(c); return; }
            c->room = c->room ? c->room * 2 : 16384;
            c->request = realloc(c->request, c->room);
            if (c->request == NULL) fail("realloc");
        }
        size_t space = c->room - c->received - 1;
        ssize_t got = recv(c->fd, c->request + c->received, space, 0);
        if (got == 0) { drop(c); return; }
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0) { drop(c); return; }
        c->received += (size_t)got;
        c->request[c->received] = '\0';
        if (!answer(c)) return;
        if ((size_t)got < space) return; /* a short read: nothing is left, else an edge follows */
    }
}

static void take_connections(struct port *port) {
    for (;;) {
        int fd = accept4(port->fd, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct conn *c = calloc(1, sizeof *c);
        if (c == NULL) fail("calloc");
        c->fd = fd;
        c->port = port;
        c->next_group = -1;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
    }
}

/* Send the groups whose time has come, then set the timer for the next. */
static void run_streams(void) {
    long now = now_ns(), next = 0;
    for (int at = 0; at < ports_count; at++) {
        struct port *port = &ports[at];
        struct conn *last = port->last;
        while (port->first != NULL && port->first->due_ns <= now) {
            struct conn *c = port->first;
            dequeue(c);
            c->out = &groups[c->next_group];
            push(c);
            if (c == last) break; /* those that were queued meanwhile take the next round */
        }
        if (port->first != NULL && (next == 0 || port->first->due_ns < next))
            next = port->first->due_ns;
    }
    if (next == 0) return;
    struct itimerspec when = {.it_value = {next / 1000000000L, next % 1000000000L}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) < 0) fail("timerfd_settime");
}

static void listen_on(struct port *port, const char *argument) {
    char *end;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    address.sin_port = htons((unsigned short)strtoul(argument, &end, 10));
    port->pace_ns = *end == ':' ? strtol(end + 1, NULL, 10) * 1000L : 0;
    port->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (port->fd < 0) fail("socket");
    if (bind(port->fd, (struct sockaddr *)&address, size) < 0) fail("bind");
    if (listen(port->fd, 1024) < 0) fail("listen");
    if (getsockname(port->fd, (struct sockaddr *)&address, &size) < 0) fail("getsockname");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = port};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, port->fd, &event) < 0) fail("epoll_ctl");
    printf("%d ", ntohs(address.sin_port));
}

int main(int argc, char **argv) {
    if (argc < 4 || argc > 3 + PORTS_MAX || atoi(argv[1]) < 1 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: upstream CHUNKS GROUP PORT:PACE_US [PORT:PACE_US ...]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    make_whole();
    make_stream(atoi(argv[1]), atoi(argv[2]));
    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event ticking = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, timer, &ticking) < 0) fail("epoll_ctl");
    for (int at = 3; at < argc; at++) listen_on(&ports[ports_count++], argv[at]);
    printf("\n");
    fflush(stdout);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int at = 0; at < count; at++) {
            void *what = events[at].data.ptr;
            struct conn *c = what;
            if (what == NULL) {
                unsigned long ticks;
                if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) fail("read");
            } else if (what >= (void *)ports && what < (void *)(ports + PORTS_MAX)) {
                take_connections(what);
            } else if (!(events[at].events & EPOLLOUT) || c->out == NULL || push(c)) {
                receive(c);
            }
        }
        run_streams();
    }
}
