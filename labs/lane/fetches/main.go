// A server that fetches a price list for its requests: while one fetch is under way, all who come
// wait for that.
//
//	fetches UPSTREAM
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// A fetch that is under way.
type fetch struct {
	done         chan struct{}
	begun, ended float64
}

var (
	lock     sync.Mutex
	underWay *fetch
)

// The clock that all processes of a machine share; Go's own has another beginning.
func nowMs() float64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano()) / 1e6
}

//go:noinline
func fetchPrices() {
	answer, err := http.Get("http://" + os.Args[1] + "/")
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

//go:noinline
func prices() *fetch {
	lock.Lock()
	if one := underWay; one != nil {
		lock.Unlock()
		<-one.done
		return one
	}
	one := &fetch{done: make(chan struct{}), begun: nowMs()}
	underWay = one
	lock.Unlock()
	fetchPrices()
	one.ended = nowMs()
	lock.Lock()
	underWay = nil
	lock.Unlock()
	close(one.done)
	return one
}

func main() {
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		read := nowMs()
		one := prices()
		fmt.Fprintf(writer, `{"read": %.3f, "begun": %.3f, "ended": %.3f}`, read, one.begun, one.ended)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
