// Answers each line that it reads: "slow" after some milliseconds, "lock" once it has a lock that
// nobody gives back.
package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"time"
)

var lock sync.Mutex

//go:noinline
func keepLock(connection net.Conn) {
	lock.Lock()
	<-make(chan struct{})
}

func serve(connection net.Conn) {
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		if lines.Text() == "lock" {
			keepLock(connection)
		}
		time.Sleep(5 * time.Millisecond)
		fmt.Fprintln(connection, "done")
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go serve(connection)
	}
}
