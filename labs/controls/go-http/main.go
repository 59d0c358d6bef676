// A healthy net/http server whose handler waits 5 ms, as for a query to somewhere else.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

func lookUp(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(5 * time.Millisecond)
	fmt.Fprint(w, "ok")
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
	http.HandleFunc("/", lookUp)
	log.Fatal(http.Serve(listener, nil))
}
