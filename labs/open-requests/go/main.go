// A net/http server that accepts no more than four connections at a time. It listens with Multipath
// TCP, as Go does by default since 1.24: its accept queue is that of a socket which the server does
// not have.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
)

const most = 4

type limited struct {
	net.Listener
	free chan struct{}
}

type counted struct {
	net.Conn
	once    sync.Once
	release func()
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	conn, err := l.Listener.Accept()
	release := func() { <-l.free }
	if err != nil {
		release()
		return nil, err
	}
	return &counted{Conn: conn, release: release}, nil
}

func (c *counted) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}

func main() {
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	log.Fatal(http.Serve(&limited{listener, make(chan struct{}, most)}, nil))
}
