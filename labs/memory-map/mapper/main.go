// The same in Go.
//
//	mapper [-fixed]
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

const (
	cacheBytes  = 256 << 20
	bufferBytes = 256 << 10
	pause       = 20 * time.Millisecond
)

func mapped(bytes, flags int) []byte {
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|flags)
	if err != nil {
		log.Fatal(err)
	}
	return memory
}

func unmap(memory []byte) {
	if err := syscall.Munmap(memory); err != nil {
		log.Fatal(err)
	}
}

func touch(memory []byte) {
	for at := 0; at < len(memory); at += 4096 {
		memory[at]++
	}
}

// Fills the cache with what only the kernel writes: the fault.
//
//go:noinline
func makeCacheAnew() {
	unmap(mapped(cacheBytes, syscall.MAP_POPULATE))
}

func keepCache(fixed bool) {
	var cache []byte
	if fixed {
		cache = mapped(cacheBytes, 0)
	}
	for ; ; time.Sleep(pause) {
		if fixed {
			touch(cache)
		} else {
			makeCacheAnew()
		}
	}
}

//go:noinline
func fillBuffer() {
	buffer := mapped(bufferBytes, 0)
	touch(buffer)
	unmap(buffer)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go keepCache(len(os.Args) > 1 && os.Args[1] == "-fixed")
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		fillBuffer()
		fmt.Fprint(writer, "filled")
	})
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
