// A server that asks another service for each request and answers with what became of it when.
//
//	go-server [-pool N] [-held] [-calls N] [-work-ms N] [-warm N] UPSTREAM
//
// With -warm it has asked several times at once before, so that it has several connections.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

var (
	pool   = flag.Int("pool", 0, "so many connections to the other service at most")
	held   = flag.Bool("held", false, "a mutex is held across each call")
	warm   = flag.Int("warm", 0, "so many calls at once before it serves")
	calls  = flag.Int("calls", 1, "so many calls for each request, one after another")
	workMs = flag.Float64("work-ms", 0, "it computes for so long before it answers")
)

// The clock that all processes of a machine share; Go's own has another beginning.
func nowMs() float64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano()) / 1e6
}

type upstream struct {
	url    string
	client *http.Client
	lock   sync.Mutex
}

// The call, from when it has a connection until its reply is read.
func (service *upstream) fetchReport() [2]float64 {
	begun := nowMs()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = nowMs() }}
	request, err := http.NewRequest("GET", service.url, nil)
	if err != nil {
		log.Fatal(err)
	}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	answer, err := service.client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	return [2]float64{begun, nowMs()}
}

//go:noinline
func (service *upstream) fetchWithLock() [2]float64 {
	service.lock.Lock()
	defer service.lock.Unlock()
	return service.fetchReport()
}

//go:noinline
func computeAnswer(milliseconds float64) {
	for end := nowMs() + milliseconds; nowMs() < end; {
	}
}

func (service *upstream) serve(writer http.ResponseWriter, _ *http.Request) {
	read := nowMs()
	var made [][2]float64
	for n := 0; n < *calls; n++ {
		if *held {
			made = append(made, service.fetchWithLock())
		} else {
			made = append(made, service.fetchReport())
		}
	}
	computeAnswer(*workMs)
	body, err := json.Marshal(map[string]any{
		"read": read, "begun": made[0][0], "ended": made[len(made)-1][1], "calls": made})
	if err != nil {
		log.Fatal(err)
	}
	writer.Header().Set("Content-Length", fmt.Sprint(len(body)))
	writer.Write(body)
}

func (service *upstream) warmUp() {
	var all sync.WaitGroup
	for n := 0; n < *warm; n++ {
		all.Add(1)
		go func() {
			service.fetchReport()
			all.Done()
		}()
	}
	all.Wait()
}

func main() {
	flag.Parse()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: *pool}
	service := &upstream{
		url: "http://" + flag.Arg(0) + "/report", client: &http.Client{Transport: transport}}
	service.warmUp()
	http.HandleFunc("/", service.serve)
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
