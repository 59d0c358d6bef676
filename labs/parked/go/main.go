// A server whose goroutines wait, each kind of wait in a function of its own.
//
//	parked KIND
//
// No thread shows any of it: a goroutine that waits gives its thread back. Each answer has the
// moments of its request: when the handler began, when its wait was over, and when its work was.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// What takes its time, while others wait for it or not.
const long = 20 * time.Millisecond

var (
	held   sync.Mutex
	shared sync.RWMutex
	// So many at a time.
	slots = make(chan struct{}, 2)
	// What works off one job after the other.
	jobs = make(chan chan struct{})
	// Things of which there are two.
	things = make(chan int, 2)
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
func compute(milliseconds float64) {
	for end := nowMs() + milliseconds; nowMs() < end; {
	}
}

// Each returns when its wait was over.

//go:noinline
func underMutexComputing() float64 {
	held.Lock()
	defer held.Unlock()
	begun := nowMs()
	compute(8)
	return begun
}

//go:noinline
func underMutexSleeping() float64 {
	held.Lock()
	defer held.Unlock()
	begun := nowMs()
	time.Sleep(long)
	return begun
}

//go:noinline
func underMutexCalling(address string) float64 {
	held.Lock()
	defer held.Unlock()
	begun := nowMs()
	answer, err := http.Get("http://" + address + "/")
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	return begun
}

//go:noinline
func readingUnderLock() float64 {
	shared.RLock()
	defer shared.RUnlock()
	return nowMs()
}

// Who writes for most of the time.
func writeAllTheTime() {
	for {
		shared.Lock()
		time.Sleep(long)
		shared.Unlock()
		time.Sleep(time.Millisecond)
	}
}

//go:noinline
func handedOver() float64 {
	done := make(chan struct{})
	jobs <- done
	begun := nowMs()
	<-done
	return begun
}

func workOffJobs() {
	for done := range jobs {
		time.Sleep(long)
		close(done)
	}
}

//go:noinline
func withinSlots() float64 {
	slots <- struct{}{}
	begun := nowMs()
	time.Sleep(long)
	<-slots
	return begun
}

//go:noinline
func withThing() float64 {
	thing := <-things
	begun := nowMs()
	time.Sleep(long)
	things <- thing
	return begun
}

//go:noinline
func whatComesFirst() float64 {
	select {
	case <-time.After(2 * long):
	case <-make(chan struct{}):
	}
	return nowMs()
}

//go:noinline
func untilAllAreDone() float64 {
	var all sync.WaitGroup
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func() {
			time.Sleep(long)
			all.Done()
		}()
	}
	all.Wait()
	return nowMs()
}

func begin(kind string) func() float64 {
	switch kind {
	case "mutex-cpu":
		return underMutexComputing
	case "mutex-sleep":
		return underMutexSleeping
	case "mutex-call":
		peer := os.Args[2]
		return func() float64 { return underMutexCalling(peer) }
	case "rwmutex":
		go writeAllTheTime()
		return readingUnderLock
	case "channel":
		go workOffJobs()
		return handedOver
	case "semaphore":
		return withinSlots
	case "pool":
		things <- 1
		things <- 2
		return withThing
	case "select-timer":
		return whatComesFirst
	case "waitgroup":
		return untilAllAreDone
	case "healthy":
		return nowMs
	}
	log.Fatalf("parked: %s is no kind", kind)
	return nil
}

func main() {
	serve := begin(os.Args[1])
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		read := nowMs()
		begun := serve()
		body := fmt.Sprintf(`{"read": %.3f, "begun": %.3f, "ended": %.3f}`, read, begun, nowMs())
		writer.Header().Set("Content-Length", fmt.Sprint(len(body)))
		writer.Write([]byte(body))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
