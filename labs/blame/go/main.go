// A net/http server whose handler computes for 60 ms.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

const render = 60 * time.Millisecond

// For a fixed time: the promise shall not depend on the machine's speed.
//
//go:noinline
func renderThumbnail() string {
	end := time.Now().Add(render)
	pixels := uint64(0)
	for time.Now().Before(end) {
		for pixel := uint64(0); pixel < 10000; pixel++ {
			pixels = pixels*31 + pixel
		}
	}
	return fmt.Sprintf("thumbnail %d", pixels&1)
}

func thumbnail(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, renderThumbnail())
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/thumbnail", thumbnail)
	log.Fatal(http.Serve(listener, nil))
}
