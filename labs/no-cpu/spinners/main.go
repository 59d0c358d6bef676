// A server that rebuilds its index all the time, on every CPU.
//
//	spinners N
//
// So many goroutines compute without end. A request computes for 1 ms.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

var sum uint64

//go:noinline
func rebuildIndex() {
	for n := uint64(0); ; n++ {
		if n*n == 7 {
			sum++
		}
	}
}

//go:noinline
func renderPage() {
	for until := time.Now().Add(time.Millisecond); time.Now().Before(until); {
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	for ; count > 0; count-- {
		go rebuildIndex()
	}
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		renderPage()
		fmt.Fprint(writer, "page")
	})
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
