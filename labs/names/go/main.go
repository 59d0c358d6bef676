// A server with a thread for each connection, in four functions by the client's number: it
// computes, sleeps, waits for a lock, calls another service, each by system calls that block the
// thread. Each answer says which function the thread was in, and from when until when.
//
//	names PEER
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	// What each takes.
	long = 20 * time.Millisecond
	// The client is a thousandth of its request's number.
	requestsPerClient = 1000
)

var (
	peer     syscall.SockaddrInet4
	lockFile string
)

// The clock that all processes of a machine share; Go's own has another beginning.
func now() int64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return time.Nano()
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// Each says from when until when it was in itself.

//go:noinline
func computing() (begun, ended int64) {
	begun = now()
	mixed := uint32(1)
	for start := time.Now(); time.Since(start) < long; {
		for round := uint32(0); round < 100000; round++ {
			mixed = mixed*31 + round
		}
	}
	// It is used.
	if mixed == 0 {
		log.Print("0")
	}
	return begun, now()
}

//go:noinline
func sleeping() (begun, ended int64) {
	begun = now()
	span := syscall.NsecToTimespec(int64(long))
	for syscall.Nanosleep(&span, &span) == syscall.EINTR {
	}
	return begun, now()
}

//go:noinline
func locking() (begun, ended int64) {
	begun = now()
	lock, err := syscall.Open(lockFile, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	must(err)
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(lock, syscall.LOCK_EX)
	}
	must(err)
	span := syscall.NsecToTimespec(int64(long / 2))
	for syscall.Nanosleep(&span, &span) == syscall.EINTR {
	}
	must(syscall.Close(lock))
	return begun, now()
}

//go:noinline
func calling() (begun, ended int64) {
	begun = now()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	must(syscall.Connect(socket, &peer))
	request := fmt.Sprintf("GET /ms=%d HTTP/1.1\r\n\r\n", long.Milliseconds())
	_, err = syscall.Write(socket, []byte(request))
	must(err)
	answer := make([]byte, 4096)
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Read(socket, answer)
	}
	must(err)
	must(syscall.Close(socket))
	return begun, now()
}

var functions = []struct {
	name string
	run  func() (int64, int64)
}{
	{"main.computing", computing}, {"main.sleeping", sleeping},
	{"main.locking", locking}, {"main.calling", calling},
}

func converse(client net.Conn) {
	// What another goroutine does on the thread would be in no answer.
	runtime.LockOSThread()
	defer client.Close()
	requests := bufio.NewReader(client)
	for {
		request, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		for line := ""; line != "\r\n"; {
			if line, err = requests.ReadString('\n'); err != nil {
				return
			}
		}
		read := now()
		number, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(request)[1], "/"))
		must(err)
		function := functions[number/requestsPerClient%len(functions)]
		begun, ended := function.run()
		answer := fmt.Sprintf(
			`{"read": %f, "begun": %f, "ended": %f, "ran": [[%d, "%s", %d, %d]]}`,
			float64(read)/1e6, float64(begun)/1e6, float64(ended)/1e6,
			syscall.Gettid(), function.name, begun, ended)
		fmt.Fprintf(client, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	}
}

func main() {
	// Who comes back from a call waits for none of them: that wait would be the runtime's, on a stack
	// of its own.
	runtime.GOMAXPROCS(32)
	address, err := net.ResolveTCPAddr("tcp4", os.Args[1])
	must(err)
	copy(peer.Addr[:], address.IP.To4())
	peer.Port = address.Port
	folder, err := os.MkdirTemp("", "names")
	must(err)
	lockFile = folder + "/lock"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	must(os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600))
	for {
		client, err := listener.Accept()
		must(err)
		go converse(client)
	}
}
