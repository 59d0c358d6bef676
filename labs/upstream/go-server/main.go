// A server that asks another service for each request and answers with what became of it when.
//
//	go-server UPSTREAM
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"unsafe"
)

// The clock that all processes of a machine share; Go's own has another beginning.
func nowMs() float64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano()) / 1e6
}

func main() {
	upstream := "http://" + os.Args[1] + "/report"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		read := nowMs()
		answer, err := client.Get(upstream)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		body := fmt.Sprintf(`{"read":%f,"begun":%f,"ended":%f}`, read, read, nowMs())
		writer.Header().Set("Content-Length", fmt.Sprint(len(body)))
		io.WriteString(writer, body)
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
