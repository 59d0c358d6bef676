// A server that asks another service for each request and answers with what became of it when.
//
//	go-server [-pool N] [-held] [-calls N] [-work-ms N] [-warm N] [-forward] [-direct] UPSTREAM
//
// With -warm it has asked several times at once before, so that it has several connections. With
// -forward its calls have the path of the request for which they are made; besides the moments of a
// call it says what the other service answered, and when it began to work and to answer. With
// -direct the goroutine that serves a request writes to the connection itself, as drivers of
// databases do; net/http has another one for that.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

var (
	pool    = flag.Int("pool", 0, "so many connections to the other service at most")
	held    = flag.Bool("held", false, "a mutex is held across each call")
	warm    = flag.Int("warm", 0, "so many calls at once before it serves")
	calls   = flag.Int("calls", 1, "so many calls for each request, one after another")
	forward = flag.Bool("forward", false, "calls have the request's path")
	direct  = flag.Bool("direct", false, "without net/http")
	workMs  = flag.Float64("work-ms", 0, "it computes for so long before it answers")
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
	address string
	client  *http.Client
	lock    sync.Mutex
	direct  chan net.Conn
}

// The moments of a call, and what the reply was if that is a moment, too.
func moments(begun float64, reply []byte) []float64 {
	said := []float64{begun, nowMs()}
	if answered, err := strconv.ParseFloat(string(reply), 64); err == nil && *forward {
		said = append(said, answered)
	}
	return said
}

// The call on a connection of those that all share, or of a new one.
func (service *upstream) fetchDirectly(path string) []float64 {
	var connection net.Conn
	select {
	case connection = <-service.direct:
	default:
		if *pool > 0 {
			connection = <-service.direct
		} else {
			connection = service.connect()
		}
	}
	begun := nowMs()
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: upstream\r\n\r\n", path)
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		log.Fatal(err)
	}
	reply, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	said := moments(begun, reply)
	service.direct <- connection
	return said
}

func (service *upstream) connect() net.Conn {
	connection, err := net.Dial("tcp", service.address)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// The call, from when it has a connection until its reply is read.
func (service *upstream) fetchReport(path string) []float64 {
	if *direct {
		return service.fetchDirectly(path)
	}
	begun := nowMs()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = nowMs() }}
	request, err := http.NewRequest("GET", "http://"+service.address+path, nil)
	if err != nil {
		log.Fatal(err)
	}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	answer, err := service.client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	reply, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	return moments(begun, reply)
}

//go:noinline
func (service *upstream) fetchWithLock(path string) []float64 {
	service.lock.Lock()
	defer service.lock.Unlock()
	return service.fetchReport(path)
}

//go:noinline
func computeAnswer(milliseconds float64) {
	for end := nowMs() + milliseconds; nowMs() < end; {
	}
}

func (service *upstream) serve(writer http.ResponseWriter, request *http.Request) {
	read := nowMs()
	path := "/report"
	if *forward {
		path = request.URL.Path
	}
	var made [][]float64
	for n := 0; n < *calls; n++ {
		if *held {
			made = append(made, service.fetchWithLock(path))
		} else {
			made = append(made, service.fetchReport(path))
		}
	}
	work := nowMs()
	computeAnswer(*workMs)
	said := map[string]any{
		"read": read, "begun": made[0][0], "ended": made[len(made)-1][1], "calls": made}
	if *forward {
		said["work"], said["answered"] = work, nowMs()
	}
	body, err := json.Marshal(said)
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
			service.fetchReport("/report")
			all.Done()
		}()
	}
	all.Wait()
}

func main() {
	flag.Parse()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: *pool}
	service := &upstream{
		address: flag.Arg(0), client: &http.Client{Transport: transport},
		direct: make(chan net.Conn, 1024)}
	for n := 0; *direct && n < *pool; n++ {
		service.direct <- service.connect()
	}
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
