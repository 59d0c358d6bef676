// A server of which clients leave before they are answered, on net/http. Each answer is 50 ms of
// computing. With -look it looks every 5 ms whether the client has gone.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	work  = 50 * time.Millisecond
	slice = 5 * time.Millisecond
)

//go:noinline
func computeReport(long time.Duration) {
	for end := time.Now().Add(long); time.Now().Before(end); {
	}
}

func main() {
	look := flag.Bool("look", false, "look whether the client has gone")
	flag.Parse()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for done := time.Duration(0); done < work; done += slice {
			if *look && r.Context().Err() != nil {
				// Not an empty answer.
				panic(http.ErrAbortHandler)
			}
			computeReport(slice)
		}
		w.Header().Set("Connection", "close")
		w.Write([]byte("{}"))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		panic(err)
	}
	panic(http.Serve(listener, nil))
}
