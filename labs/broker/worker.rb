# Workers that take jobs from a list of redis and a lock there for each of them, as worker.py
# --polled does.
#
#   ruby worker.rb ADDRESS [--threads N] [--each]
require 'optparse'
require 'socket'

# A connection that speaks RESP, as far as it is needed.
class Redis
  def initialize(address)
    host, port = address.split(':')
    @socket = TCPSocket.new(host, port.to_i)
    @socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  end

  def call(*words)
    sent = words.map { |word| "$#{word.bytesize}\r\n#{word}\r\n" }
    @socket.write("*#{words.length}\r\n#{sent.join}")
    receive
  end

  def receive
    line = @socket.gets("\r\n").chomp
    rest = line[1..]
    case line[0]
    when '*' then Array.new(rest.to_i) { receive }
    when '$' then rest == '-1' ? nil : @socket.read(rest.to_i + 2)[0...-2]
    when '+', ':' then rest
    else abort("redis said #{line}")
    end
  end
end

# The clock that all processes of a machine share.
def now_ms
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
end

def acquire(own, lock)
  sleep 0.02 until own.call('SET', lock, '1', 'NX', 'PX', '10000')
end

def charge_customer
  sleep 0.015
end

def charge_under_lock(own, lock)
  acquire(own, lock)
  charge_customer
  own.call('DEL', lock)
end

def work_off(address, each)
  own = Redis.new(address)
  other = Redis.new(address)
  loop do
    job = own.call('BLPOP', 'jobs', '0')[1]
    taken = now_ms
    charge_under_lock(other, each ? "lock:#{job}" : 'lock')
    other.call('RPUSH', 'done', "#{job} #{taken} #{now_ms}")
  end
end

options = { threads: 6, each: false }
OptionParser.new do |parser|
  parser.on('--threads N', Integer)
  parser.on('--each')
end.parse!(into: options)
address = ARGV.fetch(0)
workers = Array.new(options[:threads]) { Thread.new { work_off(address, options[:each]) } }
File.write(ENV.fetch('READY_FILE'), "#{Process.pid} #{address}\n")
workers.each(&:join)
