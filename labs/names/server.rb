# A server with a thread for each connection, in four functions by the client's number: it
# computes, sleeps, waits for a lock, calls another service. Each answer says which function the
# thread was in, and from when until when.
#
#   ruby server.rb PEER

require 'json'
require 'socket'

# What each takes, in seconds.
LONG_S = 0.020
# Calls before the first request: the compiler is asked for fewer.
WARM_UP = 20
LOCK = Mutex.new
# The client is a thousandth of its request's number.
REQUESTS_PER_CLIENT = 1000
FUNCTIONS = %i[computing sleeping locking calling].freeze
PEER_HOST, PEER_PORT = ARGV.fetch(0).split(':')
CLOCK = [Process::CLOCK_MONOTONIC, :nanosecond].freeze

# Each says from when until when it was in itself.
def computing(seconds)
  begun = Process.clock_gettime(*CLOCK)
  finish = begun + (seconds * 1e9)
  mixed = 1
  while Process.clock_gettime(*CLOCK) < finish
    round = 0
    while round < 200
      mixed = ((mixed * 31) + round) & 0xffffffff
      round += 1
    end
  end
  [begun, Process.clock_gettime(*CLOCK)]
end

def sleeping(seconds)
  begun = Process.clock_gettime(*CLOCK)
  sleep seconds
  [begun, Process.clock_gettime(*CLOCK)]
end

def locking(seconds)
  begun = Process.clock_gettime(*CLOCK)
  LOCK.lock
  sleep seconds / 2
  LOCK.unlock
  [begun, Process.clock_gettime(*CLOCK)]
end

def calling(seconds)
  begun = Process.clock_gettime(*CLOCK)
  peer = TCPSocket.new(PEER_HOST, PEER_PORT)
  peer.write("GET /ms=#{(seconds * 1e3).round} HTTP/1.1\r\n\r\n")
  peer.readpartial(4096)
  peer.close
  [begun, Process.clock_gettime(*CLOCK)]
end

def work(way, seconds)
  case way
  when 0 then computing(seconds)
  when 1 then sleeping(seconds)
  when 2 then locking(seconds)
  else calling(seconds)
  end
end

def body(way, read)
  begun, ended = work(way, LONG_S)
  JSON.generate(
    read: read / 1e6, begun: begun / 1e6, ended: ended / 1e6,
    ran: [[Thread.current.native_thread_id, FUNCTIONS[way], begun, ended]]
  )
end

def converse(client)
  client.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  while (request = client.gets)
    nil until client.gets == "\r\n"
    read = Process.clock_gettime(*CLOCK)
    number = request.split[1].delete_prefix('/').to_i
    answer = body(number / REQUESTS_PER_CLIENT % FUNCTIONS.size, read)
    client.write("HTTP/1.1 200 OK\r\nContent-Length: #{answer.bytesize}\r\n\r\n#{answer}")
  end
rescue SystemCallError
  # The client has gone.
ensure
  client.close
end

# Real ones, so that what is compiled has each way through it.
WARM_UP.times { FUNCTIONS.each_index { |way| work(way, 0.0001) } }
listener = TCPServer.new('127.0.0.1', 0)
File.write(ENV.fetch('READY_FILE'), "#{Process.pid} 127.0.0.1:#{listener.addr[1]}\n")
loop { Thread.new(listener.accept) { |client| converse(client) } }
