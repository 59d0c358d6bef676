# Threads that accept, and each keeps its connection until the client closes it.
#
#     kept.rb WORKERS

require "json"
require "socket"

WORK_S = 0.003

def now_ms
  1e3 * Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# A request with its body: the fault. False: the client has gone.
def read_request(connection)
  length = 0
  loop do
    line = connection.gets("\r\n")
    return false unless line

    break if line == "\r\n"

    length = Regexp.last_match(1).to_i if line =~ /\AContent-Length: *(\d+)/i
  end
  length.zero? || connection.read(length)&.bytesize == length
end

def keep(connection)
  while read_request(connection)
    read = now_ms
    # Long enough to be recorded: so it shows who serves.
    sleep WORK_S
    body = JSON.generate({ read: read, begun: read, ended: now_ms })
    connection.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
  end
rescue SystemCallError
  # A client that goes away is no news.
ensure
  connection.close
end

listener = TCPServer.new("127.0.0.1", 0)
listener.listen(128)
workers = Array.new(ARGV.fetch(0).to_i) do
  Thread.new { loop { keep(listener.accept) } }
end
File.write(ENV.fetch("READY_FILE"), "#{Process.pid} 127.0.0.1:#{listener.addr[1]}\n")
workers.each(&:join)
