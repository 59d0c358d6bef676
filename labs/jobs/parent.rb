# A server of two processes: the child serves, and its parent looks up names for it, one by one.
#
#     parent.rb
#
# Of four clients three ask for a slow name, the fourth one for a quick one: that waits behind the
# others. The child has a thread for each client, and one that takes the parent's answers.
require 'socket'

def now_ms
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
end

def look_up(name)
  Addrinfo.getaddrinfo(name, 5432, :INET, :STREAM).first.ip_address
end

# The parent.
def serve_names(child)
  while (line = child.gets)
    begun = now_ms
    look_up(line.chomp)
    child.puts("#{begun} #{now_ms}")
  end
end

# What the child asks its parent. Answers come in the order of questions.
class Names
  def initialize(parent)
    @parent = parent
    @asking = Mutex.new
    @asked = Queue.new
    Thread.new { take_answers }
  end

  def look_up(name)
    answer = Queue.new
    @asking.synchronize do
      @asked << answer
      @parent.puts(name)
    end
    answer.pop
  end

  private

  def take_answers
    while (line = @parent.gets)
      @asked.pop << line.split.map(&:to_f)
    end
    exit!(0)
  end
end

def converse(client, names)
  client.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  while (line = client.gets)
    read = now_ms
    # The number is 1000 * C + R, for round R of client C.
    number = line.split[1].delete('/').to_i
    nil until client.gets == "\r\n"
    kind = number / 1000 % 4 == 3 ? 'quick' : 'slow'
    begun, ended = names.look_up("#{kind}-#{number}.lab")
    body = format('{"read": %.3f, "begun": %.3f, "ended": %.3f}', read, begun, ended)
    client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\n\r\n#{body}")
  end
end

def serve(parent)
  names = Names.new(parent)
  listener = TCPServer.new('127.0.0.1', 0)
  File.write(ENV.fetch('READY_FILE'), "#{Process.ppid} 127.0.0.1:#{listener.addr[1]}\n")
  loop do
    client = listener.accept
    Thread.new { converse(client, names) }
  end
end

ours, theirs = UNIXSocket.pair
if fork
  theirs.close
  serve_names(ours)
else
  ours.close
  serve(theirs)
end
