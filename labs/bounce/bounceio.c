/* What Lua's library lacks for server.lua: sockets, epoll, the length of a send queue, TLS, and CPU
 * time. Each function is one call, so that what the server does can be read in server.lua alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <lauxlib.h>
#include <linux/sockios.h>
#include <lua.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE 16384
#define MOST_EVENTS 64
#define CONTEXT "bounceio.context"
#define SESSION "bounceio.session"

static int failed(lua_State *L, const char *what) {
    return luaL_error(L, "%s: %s", what, strerror(errno));
}

static int as_fd(lua_State *L, int index) { return (int)luaL_checkinteger(L, index); }

/* listen(sndbuf) -> fd, port. Accepted sockets inherit the size of the send buffer. */
static int io_listen(lua_State *L) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int sndbuf = as_fd(L, 1), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf) ||
        bind(fd, (struct sockaddr *)&address, size) || listen(fd, 128) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        return failed(L, "listen");
    lua_pushinteger(L, fd);
    lua_pushinteger(L, ntohs(address.sin_port));
    return 2;
}

/* accept(fd) -> fd or nil */
static int io_accept(lua_State *L) {
    int fd = accept4(as_fd(L, 1), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED)
        return failed(L, "accept");
    if (fd < 0)
        return 0;
    lua_pushinteger(L, fd);
    return 1;
}

/* read(fd) -> bytes; "" at the end; nil and "again" or what went wrong */
static int io_read(lua_State *L) {
    char bytes[READ_SIZE];
    ssize_t got = read(as_fd(L, 1), bytes, sizeof bytes);
    if (got >= 0) {
        lua_pushlstring(L, bytes, got);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, errno == EAGAIN ? "again" : strerror(errno));
    return 2;
}

/* write(fd, bytes, from) -> how many were taken; nil and "again" or what went wrong. `from` counts
 * from 1. */
static int io_write(lua_State *L) {
    size_t size;
    const char *bytes = luaL_checklstring(L, 2, &size);
    size_t from = luaL_checkinteger(L, 3) - 1;
    luaL_argcheck(L, from <= size, 3, "beyond the end");
    ssize_t sent = send(as_fd(L, 1), bytes + from, size - from, MSG_NOSIGNAL);
    if (sent >= 0) {
        lua_pushinteger(L, sent);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, errno == EAGAIN ? "again" : strerror(errno));
    return 2;
}

/* sendqueue(fd) -> bytes that the peer has not acknowledged */
static int io_sendqueue(lua_State *L) {
    int queued;
    if (ioctl(as_fd(L, 1), SIOCOUTQ, &queued))
        return failed(L, "SIOCOUTQ");
    lua_pushinteger(L, queued);
    return 1;
}

static int io_close(lua_State *L) {
    close(as_fd(L, 1));
    return 0;
}

static int io_epoll(lua_State *L) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return failed(L, "epoll_create1");
    lua_pushinteger(L, fd);
    return 1;
}

static int control(lua_State *L, int operation) {
    int fd = as_fd(L, 2);
    struct epoll_event event = {.events = (uint32_t)luaL_checkinteger(L, 3), .data.fd = fd};
    if (epoll_ctl(as_fd(L, 1), operation, fd, &event))
        return failed(L, "epoll_ctl");
    return 0;
}

/* add(epoll, fd, events), mod(epoll, fd, events) */
static int io_add(lua_State *L) { return control(L, EPOLL_CTL_ADD); }
static int io_mod(lua_State *L) { return control(L, EPOLL_CTL_MOD); }

/* wait(epoll, table) -> how many: fds and events alternate in the table */
static int io_wait(lua_State *L) {
    struct epoll_event events[MOST_EVENTS];
    int count = epoll_wait(as_fd(L, 1), events, MOST_EVENTS, -1);
    if (count < 0 && errno != EINTR)
        return failed(L, "epoll_wait");
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, events[i].data.fd);
        lua_rawseti(L, 2, 2 * i + 1);
        lua_pushinteger(L, events[i].events);
        lua_rawseti(L, 2, 2 * i + 2);
    }
    lua_pushinteger(L, count < 0 ? 0 : count);
    return 1;
}

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

/* cpu() -> user and system seconds of this process */
static int io_cpu(lua_State *L) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    lua_pushnumber(L, seconds(usage.ru_utime));
    lua_pushnumber(L, seconds(usage.ru_stime));
    return 2;
}

static int io_now(lua_State *L) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lua_pushnumber(L, now.tv_sec + now.tv_nsec / 1e9);
    return 1;
}

static int io_pid(lua_State *L) {
    lua_pushinteger(L, getpid());
    return 1;
}

/* A key and a certificate that it signs itself, for this run. */
static int certify(SSL_CTX *context) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    int done = key && certificate && X509_set_version(certificate, 2) &&
               ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
               X509_gmtime_adj(X509_getm_notBefore(certificate), -3600) &&
               X509_gmtime_adj(X509_getm_notAfter(certificate), 86400) &&
               X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                          (const unsigned char *)"localhost", -1, -1, 0) &&
               X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) &&
               X509_set_pubkey(certificate, key) && X509_sign(certificate, key, EVP_sha256()) &&
               SSL_CTX_use_certificate(context, certificate) &&
               SSL_CTX_use_PrivateKey(context, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return done;
}

static int tls_failed(lua_State *L, const char *what) {
    return luaL_error(L, "%s: %s", what, ERR_error_string(ERR_get_error(), NULL));
}

/* tls_context() -> context */
static int io_tls_context(lua_State *L) {
    SSL_CTX **context = lua_newuserdatauv(L, sizeof *context, 0);
    *context = SSL_CTX_new(TLS_server_method());
    luaL_setmetatable(L, CONTEXT);
    if (!*context || !certify(*context))
        return tls_failed(L, "TLS");
    SSL_CTX_set_mode(*context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* Each connection is a handshake, and no more is written to the client than it waits for. */
    SSL_CTX_set_session_cache_mode(*context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(*context, 0);
    return 1;
}

static int context_gc(lua_State *L) {
    SSL_CTX_free(*(SSL_CTX **)luaL_checkudata(L, 1, CONTEXT));
    return 0;
}

/* tls_session(context, fd) -> session */
static int io_tls_session(lua_State *L) {
    SSL_CTX *context = *(SSL_CTX **)luaL_checkudata(L, 1, CONTEXT);
    SSL **session = lua_newuserdatauv(L, sizeof *session, 0);
    *session = SSL_new(context);
    luaL_setmetatable(L, SESSION);
    if (!*session || !SSL_set_fd(*session, as_fd(L, 2)))
        return tls_failed(L, "SSL_new");
    SSL_set_accept_state(*session);
    return 1;
}

static SSL *session(lua_State *L) { return *(SSL **)luaL_checkudata(L, 1, SESSION); }

static int session_gc(lua_State *L) {
    SSL_free(session(L));
    return 0;
}

/* nil and "again" (to read), "full" (to write) or what went wrong */
static int tls_not_done(lua_State *L, int result) {
    int error = SSL_get_error(session(L), result);
    lua_pushnil(L);
    lua_pushstring(L, error == SSL_ERROR_WANT_READ    ? "again"
                      : error == SSL_ERROR_WANT_WRITE ? "full"
                                                      : "TLS failed");
    ERR_clear_error();
    return 2;
}

/* tls_read(session) -> bytes; "" at the end; or as tls_not_done. Shakes hands first. */
static int io_tls_read(lua_State *L) {
    char bytes[READ_SIZE];
    int got = SSL_read(session(L), bytes, sizeof bytes);
    if (got <= 0 && SSL_get_error(session(L), got) != SSL_ERROR_ZERO_RETURN)
        return tls_not_done(L, got);
    lua_pushlstring(L, bytes, got < 0 ? 0 : got);
    return 1;
}

/* tls_write(session, bytes, from) -> how many were taken; or as tls_not_done */
static int io_tls_write(lua_State *L) {
    size_t size;
    const char *bytes = luaL_checklstring(L, 2, &size);
    size_t from = luaL_checkinteger(L, 3) - 1;
    luaL_argcheck(L, from < size, 3, "beyond the end");
    int sent = SSL_write(session(L), bytes + from, (int)(size - from));
    if (sent <= 0)
        return tls_not_done(L, sent);
    lua_pushinteger(L, sent);
    return 1;
}

/* tls_bye(session): says that nothing follows, and waits for no answer */
static int io_tls_bye(lua_State *L) {
    SSL_shutdown(session(L));
    ERR_clear_error();
    return 0;
}

static const luaL_Reg functions[] = {
    {"listen", io_listen},
    {"accept", io_accept},
    {"read", io_read},
    {"write", io_write},
    {"sendqueue", io_sendqueue},
    {"close", io_close},
    {"epoll", io_epoll},
    {"add", io_add},
    {"mod", io_mod},
    {"wait", io_wait},
    {"cpu", io_cpu},
    {"now", io_now},
    {"pid", io_pid},
    {"tls_context", io_tls_context},
    {"tls_session", io_tls_session},
    {"tls_read", io_tls_read},
    {"tls_write", io_tls_write},
    {"tls_bye", io_tls_bye},
    {NULL, NULL},
};

static void type(lua_State *L, const char *name, lua_CFunction gc) {
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

int luaopen_bounceio(lua_State *L) {
    type(L, CONTEXT, context_gc);
    type(L, SESSION, session_gc);
    luaL_newlib(L, functions);
    lua_pushinteger(L, EPOLLIN);
    lua_setfield(L, -2, "IN");
    lua_pushinteger(L, EPOLLOUT);
    lua_setfield(L, -2, "OUT");
    lua_pushinteger(L, EPOLLET);
    lua_setfield(L, -2, "EDGE");
    return 1;
}
