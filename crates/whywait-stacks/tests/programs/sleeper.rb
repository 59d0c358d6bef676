# Blocks two threads, in sleep and in a lock, below functions, a method and a block that C calls.

class Server
  def handle(seconds)
    sleep seconds # line 5
  end
end

def compare(_one, _other)
  Server.new.handle(1000) # line 10
  0
end

def request
  # sort calls back from C: a second call of the interpreter's loop.
  [1, 2].sort { |one, other| compare(one, other) } # line 16
end

def wait_for(lock)
  lock.lock # line 20
end

lock = Mutex.new
lock.lock
Thread.new { wait_for(lock) } # line 25
request # line 26
