# A journal that another process appends to as well: who finds it locked sleeps for 10 ms, and tries
# again. A thread for each connection.
#
#     polled.rb FOLDER
require "json"
require "socket"

TRY_AGAIN_S = 0.01

def now_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)

def lock(journal)
  sleep(TRY_AGAIN_S) until journal.flock(File::LOCK_EX | File::LOCK_NB)
end

def about(waits)
  times = waits.sort
  at = ->(percent) { times[(times.size * percent + 99) / 100 - 1] }
  JSON.generate(lock_wait: { count: times.size, sum_ms: times.sum, p50_ms: at[50], p99_ms: at[99] })
end

waits = Queue.new
seen = []
path = File.join(ARGV[0], "session")
listener = TCPServer.new("127.0.0.1", 0)
File.write(ENV.fetch("READY_FILE"), "#{Process.pid} 127.0.0.1:#{listener.addr[1]}\n")
loop do
  Thread.new(listener.accept) do |client|
    client.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    journal = File.open(path, "a")
    while (request = client.gets)
      nil until client.gets == "\r\n"
      if request.split[1] == "/about"
        seen << waits.pop until waits.empty?
        body = about(seen)
      else
        begun = now_ms
        lock(journal)
        waits << now_ms - begun
        journal.flock(File::LOCK_UN)
        body = "written"
      end
      client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
    end
  end
end
