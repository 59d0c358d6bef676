// A server with two routes: a list makes many calls in a row, an item makes one.
//
//	routes [-together] -calls N UPSTREAM
//
// Of ten clients one asks for lists: /NUMBER is 1000 * C + R, for round R of client C. With
// -together a list asks for all in one call.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

var (
	together = flag.Bool("together", false, "one call for a list")
	calls    = flag.Int("calls", 60, "so many for a list otherwise")
	free     = make(chan net.Conn, 64)
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
func render(milliseconds float64) {
	for end := nowMs() + milliseconds; nowMs() < end; {
	}
}

// As drivers of databases do it: who needs a connection takes one that is free, or makes one, and
// writes to it.
func fetch(made [][2]float64) [][2]float64 {
	var connection net.Conn
	var err error
	select {
	case connection = <-free:
	default:
		if connection, err = net.Dial("tcp", flag.Arg(0)); err != nil {
			log.Fatal(err)
		}
	}
	begun := nowMs()
	if _, err = connection.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		log.Fatal(err)
	}
	if _, err = connection.Read(make([]byte, 4096)); err != nil {
		log.Fatal(err)
	}
	ended := nowMs()
	free <- connection
	return append(made, [2]float64{begun, ended})
}

//go:noinline
func loadItem() [][2]float64 { return fetch(nil) }

//go:noinline
func loadList() (made [][2]float64) {
	for n := 0; n < *calls; n++ {
		made = fetch(made)
	}
	return made
}

func serve(writer http.ResponseWriter, request *http.Request) {
	read := nowMs()
	number, err := strconv.Atoi(request.URL.Path[1:])
	if err != nil {
		log.Fatal(err)
	}
	load := loadItem
	if number/1000%10 == 0 && !*together {
		load = loadList
	}
	made := load()
	render(1)
	said := map[string]any{"read": read, "begun": made[0][0], "ended": nowMs(), "calls": made}
	body, err := json.Marshal(said)
	if err != nil {
		log.Fatal(err)
	}
	writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	writer.Write(body)
}

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/", serve)
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
