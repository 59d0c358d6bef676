// A server in Go that has a job which looks at all goroutines now and then, for a monitor. All of
// their stacks as text: the runtime stops every goroutine meanwhile. With -counted it asks for how
// many there are in which place, and they go on.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

var (
	counted = flag.Bool("counted", false, "without stopping them")
	parked  = flag.Int("parked", 60000, "so many goroutines wait for something")
)

var never = make(chan struct{})

func waitForever(depth int) {
	if depth > 0 {
		waitForever(depth - 1)
		return
	}
	<-never
}

//go:noinline
func dumpStacks(text []byte) int {
	return runtime.Stack(text, true)
}

func monitor() {
	text := make([]byte, 256<<20)
	for {
		time.Sleep(400 * time.Millisecond)
		if *counted {
			if err := pprof.Lookup("goroutine").WriteTo(io.Discard, 1); err != nil {
				log.Fatal(err)
			}
		} else {
			dumpStacks(text)
		}
	}
}

//go:noinline
func renderPage() {
	for until := time.Now().Add(time.Millisecond); time.Now().Before(until); {
	}
}

func main() {
	flag.Parse()
	for i := 0; i < *parked; i++ {
		go waitForever(8)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go monitor()
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		renderPage()
		fmt.Fprint(writer, "page")
	})
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
