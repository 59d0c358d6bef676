// A server in Go whose requests pass one by one.
//
//	lane actor|mutex [-spread]
//
// actor: a goroutine takes a message from its channel, and waits 20 ms for each. mutex: a request
// computes for 10 ms with a sync.Mutex. With -spread there is a goroutine for each message, and
// nothing is locked while it computes.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

var (
	spread  = len(os.Args) > 2 && os.Args[2] == "-spread"
	inbox   = make(chan chan string)
	account sync.Mutex
)

func throttle() { time.Sleep(20 * time.Millisecond) }

func keepAccount() {
	for done := range inbox {
		throttle()
		done <- "booked"
	}
}

//go:noinline
func computeInterest() {
	for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); {
	}
}

func book() string {
	switch {
	case os.Args[1] == "mutex" && spread:
		computeInterest()
	case os.Args[1] == "mutex":
		account.Lock()
		computeInterest()
		account.Unlock()
	case spread:
		throttle()
	default:
		done := make(chan string)
		inbox <- done
		return <-done
	}
	return "booked"
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go keepAccount()
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprint(writer, book())
	})
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
