// A catalogue behind a sync.RWMutex, which lets writers pass new readers.
//
//	catalogue [-copied]
//
// A goroutine reads all of it for an export, which takes 60 ms; another one changes a price now and
// then and waits for the export's end, and the requests, which read a price, wait for that one.
// With -copied the export copies what it needs, for which it has the lock for a moment.
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

const rest = 20 * time.Millisecond

var (
	copied    = len(os.Args) > 1 && os.Args[1] == "-copied"
	catalogue sync.RWMutex
	price     = 1
)

//go:noinline
func writeExport() { time.Sleep(60 * time.Millisecond) }

//go:noinline
func exportAll() {
	catalogue.RLock()
	if !copied {
		writeExport()
	}
	catalogue.RUnlock()
	if copied {
		writeExport()
	}
}

//go:noinline
func changePrice() {
	catalogue.Lock()
	price++
	catalogue.Unlock()
}

//go:noinline
func readPrice() int {
	catalogue.RLock()
	defer catalogue.RUnlock()
	return price
}

func forever(work func()) {
	for {
		work()
		time.Sleep(rest)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go forever(exportAll)
	go forever(changePrice)
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(writer, readPrice())
	})
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
