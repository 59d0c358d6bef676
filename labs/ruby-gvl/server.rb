# A small HTTP server in Ruby with a thread for each connection, beside a thread that computes for
# good.
#
#   ruby server.rb [--process | --mutex [--processes]]
#
# One thread has the interpreter's lock (the GVL) at a time. Who computes gives it up after 100 ms,
# when others want it: a request, which needs the lock again after each call that waits, waits for
# that long each time. With --process another process computes. With --mutex nobody computes beside
# requests, but each of them computes, at first with a Mutex in its hands and then without. With
# --processes it does so in a process that has one connection at a time.

require 'json'
require 'socket'

# What a request waits for on purpose: what the call takes beyond that is the wait for the lock.
PAUSE_S = 0.002

WAITS = Queue.new

def now_ms
  Process.clock_gettime(Process::CLOCK_MONOTONIC) * 1e3
end

# Nearest ranks, as the clients have them.
def summary(series)
  sorted = series.sort
  return { count: 0 } if sorted.empty?

  at = ->(percent) { sorted[((sorted.size * percent) + 99) / 100 - 1] }
  { count: sorted.size, p50_ms: at[50], p99_ms: at[99], max_ms: sorted.last, sum_ms: sorted.sum }
end

# Computes and never waits: the lock is this thread's but for moments.
def rebuild_index
  digest = 1
  loop { digest = (digest * 1_103_515_245 + 12_345) & 0xffffffff }
end

# Waits without the lock, and wants it back.
def ask_cache
  begun = now_ms
  sleep PAUSE_S
  WAITS << now_ms - begun - (PAUSE_S * 1e3)
end

# Computes for about 10 ms.
def render
  until_ms = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :float_millisecond) + 10
  nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :float_millisecond) < until_ms
end

PAGE_LOCK = Mutex.new

def render_locked
  PAGE_LOCK.synchronize { render }
  render
end

def answer(path)
  if ARGV.include?('--mutex')
    render_locked
    return 'rendered'
  end
  if path == '/about'
    waits = Array.new(WAITS.size) { WAITS.pop }
    return JSON.generate(gvl_wait: summary(waits))
  end
  ask_cache
  'cached'
end

# Keep-alive, GET only: what the labs' clients speak.
def serve_connection(connection)
  connection.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  while (request = connection.gets)
    nil until connection.gets == "\r\n"
    body = answer(request.split[1])
    connection.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
  end
rescue SystemCallError
  # The client has gone.
ensure
  connection.close
end

# Each has an interpreter of its own, and a lock.
def serve_in_processes(listener)
  children = Array.new(5) do
    fork { loop { serve_connection(listener.accept) } }
  end
  at_exit { Process.kill('KILL', *children) }
  loop { serve_connection(listener.accept) }
end

if ARGV.include?('--mutex')
  # Requests compute.
elsif ARGV.include?('--process')
  computes = fork { rebuild_index }
  at_exit { Process.kill('KILL', computes) }
else
  Thread.new { rebuild_index }
end
listener = TCPServer.new('127.0.0.1', 0)
File.write(ENV.fetch('READY_FILE'), "#{Process.pid} 127.0.0.1:#{listener.addr[1]}\n")
serve_in_processes(listener) if ARGV.include?('--processes')
loop { Thread.new(listener.accept) { |connection| serve_connection(connection) } }
