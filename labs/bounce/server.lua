-- A server of documents with a coroutine for each connection, on two listeners: plain and TLS. A
-- request is a line, the answer a document, and then the connection is closed.
--
--   lua5.4 server.lua FOLDER_OF_BOUNCEIO [--fixed] [--edge]
--
-- The fault: to close a plain connection it waits until the peer has everything, and waits for that
-- by asking for the socket to be writable, which it is all the time.

package.cpath = arg[1] .. "/?.so"
local io_ = require "bounceio"

local flags = {}
for i = 2, #arg do flags[arg[i]] = true end
local fixed, edge = flags["--fixed"], flags["--edge"] and io_.EDGE or 0

-- The document fits into the send buffer: the kernel takes it at once, long before the client reads
-- it.
local SNDBUF = 200 * 1024
local DOCUMENT = ("gopher://localhost/0/"):rep(3000):sub(1, 60000)

local epoll = io_.epoll()
local connections = {} -- by fd
local truth = {
  bounces = 0, drains = 0, drain_s = 0,
  plain = { requests = 0, user_s = 0, system_s = 0, bytes = 0 },
  tls = { requests = 0, user_s = 0, system_s = 0, bytes = 0 },
}

-- Waits for an event on the connection, in its coroutine.
local function wait_for(connection, events)
  if connection.events ~= events then
    connection.events = events
    io_.mod(epoll, connection.fd, events | edge)
  end
  coroutine.yield()
end

-- What a listener's connections do in their own way.
local plain, tls = {}, {}

function plain.open() end
function plain.read(connection) return io_.read(connection.fd) end

function plain.drain(connection)
  if fixed then return end
  local begun = io_.now()
  while io_.sendqueue(connection.fd) > 0 do
    truth.bounces = truth.bounces + 1
    wait_for(connection, io_.OUT)
  end
  truth.drains = truth.drains + 1
  truth.drain_s = truth.drain_s + (io_.now() - begun)
end

function plain.write(connection, bytes, from) return io_.write(connection.fd, bytes, from) end

local context = io_.tls_context()
function tls.open(connection) connection.session = io_.tls_session(context, connection.fd) end
function tls.read(connection) return io_.tls_read(connection.session) end
function tls.write(connection, bytes, from)
  return io_.tls_write(connection.session, bytes, from)
end
function tls.drain(connection) io_.tls_bye(connection.session) end

local function read_line(connection)
  local line = ""
  while true do
    local bytes, why = connection.kind.read(connection)
    if bytes == "" then return nil end
    if bytes then
      line = line .. bytes
      local found = line:match("^(.-)\r?\n")
      if found then return found end
    elseif why == "again" or why == "full" then
      wait_for(connection, why == "again" and io_.IN or io_.OUT)
    else
      return nil
    end
  end
end

local function about()
  local function listener(of)
    return ('{"requests":%d,"user_s":%.6f,"system_s":%.6f,"cpu_s":%.6f,"bytes":%d}'):format(
      of.requests, of.user_s, of.system_s, of.user_s + of.system_s, of.bytes)
  end
  local user, system = io_.cpu()
  return ('{"bounces":%d,"drains":%d,"drain_s":%.6f,"plain":%s,"tls":%s,' ..
    '"process_cpu_s":%.6f,"pid":%d}\n'):format(
    truth.bounces, truth.drains, truth.drain_s, listener(truth.plain), listener(truth.tls),
    user + system, io_.pid())
end

-- What is left of the answer goes out when the socket is writable; see on_event.
local function send(connection, bytes)
  connection.out, connection.from = bytes, 1
  while connection.out do
    local sent, why = connection.kind.write(connection, connection.out, connection.from)
    if sent then
      connection.from = connection.from + sent
      if connection.from > #connection.out then connection.out = nil end
    elseif why == "again" or why == "full" then
      -- TLS never asks to read here: the client sends nothing while it is answered.
      wait_for(connection, io_.OUT)
    else
      return false
    end
  end
  return true
end

local function close(connection)
  connection.kind.drain(connection)
  io_.close(connection.fd)
  connections[connection.fd] = nil
end

-- The CPU time from taking a connection to closing it is the listener's: the load has one
-- connection at a time.
local function serve(connection)
  local user, system = io_.cpu()
  connection.kind.open(connection)
  local line = read_line(connection)
  local counts = line == "/document"
  if line then send(connection, counts and DOCUMENT or about()) end
  close(connection)
  if counts then
    local of = truth[connection.name]
    local user_then, system_then = io_.cpu()
    of.requests = of.requests + 1
    of.bytes = of.bytes + #DOCUMENT
    of.user_s = of.user_s + (user_then - user)
    of.system_s = of.system_s + (system_then - system)
  end
end

local function resume(connection)
  local fine, why = coroutine.resume(connection.coroutine, connection)
  if not fine then error(debug.traceback(connection.coroutine, why)) end
end

-- Nothing is left to write when the connection drains: then there is no interest in writing any
-- more, and its coroutine goes on. It looks at the queue again, finds it as it was, and asks to
-- write.
local function on_event(connection, events)
  if not connection.out and events & io_.OUT ~= 0 and connection.kind == plain then
    connection.unsent = io_.sendqueue(connection.fd)
    connection.events = io_.IN
    io_.mod(epoll, connection.fd, io_.IN | edge)
  end
  resume(connection)
end

local listeners = {}
local function listen(name, kind)
  local fd, port = io_.listen(SNDBUF)
  listeners[fd] = { name = name, kind = kind }
  io_.add(epoll, fd, io_.IN)
  return port
end

local function accept_all(fd)
  for new in function() return io_.accept(fd) end do
    local listener = listeners[fd]
    local connection = {
      fd = new, kind = listener.kind, name = listener.name, events = io_.IN,
      coroutine = coroutine.create(serve),
    }
    connections[new] = connection
    io_.add(epoll, new, io_.IN | edge)
    resume(connection)
  end
end

local plain_port, tls_port = listen("plain", plain), listen("tls", tls)
local name = assert(os.getenv("READY_FILE"), "READY_FILE must name the file to write when ready")
local file = assert(io.open(name, "w"))
file:write(("%d 127.0.0.1:%d,%d\n"):format(io_.pid(), plain_port, tls_port))
file:close()

local events = {}
while true do
  local count = io_.wait(epoll, events)
  for i = 1, count do
    local fd = events[2 * i - 1]
    if listeners[fd] then
      accept_all(fd)
    elseif connections[fd] then
      on_event(connections[fd], events[2 * i])
    end
  end
end
