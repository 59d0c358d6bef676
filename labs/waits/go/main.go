// A server in Go whose goroutines wait for locks, for work, for answers and for times.
//
// None of that reaches a futex: a goroutine that waits gives its thread back. By construction of
// the runtime a thread waits on a futex without a time limit only for a goroutine to run (stopm, by
// notesleep), which is idle. The one that waits with a limit is the monitor (sysmon, by
// notetsleep): for the next timer, or for any thread to have work again, so that both classes are
// right of it. Threads of Go have no names; here they get those by /proc. The runtime's own locks
// are held for less than a microsecond. A goroutine that is locked to its thread would make the
// thread wait for what it waits for itself; there is none here.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	monitor = "idle|timer-mon"
	machine = "idle-m"
)

var (
	ledger sync.Mutex
	jobs   = make(chan chan struct{})
)

// The threads of this process, in the order of their numbers.
func threads() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		log.Fatal(err)
	}
	var found []int
	for _, entry := range entries {
		if tid, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, tid)
		}
	}
	return found
}

// A new thread has its creator's name, which may be the monitor.
func name(sysmon int) {
	for _, tid := range threads() {
		want := machine
		if tid == sysmon {
			want = monitor
		}
		file := fmt.Sprintf("/proc/self/task/%d/comm", tid)
		if has, err := os.ReadFile(file); err == nil && string(has) != want+"\n" {
			if err := os.WriteFile(file, []byte(want), 0); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func spin(long time.Duration) {
	for begun := time.Now(); time.Since(begun) < long; {
	}
}

func helper() {
	for reply := range jobs {
		spin(2 * time.Millisecond)
		time.Sleep(18 * time.Millisecond)
		reply <- struct{}{}
	}
}

// What a connection waits for hangs on which connection it is.
func answer(number int) {
	switch number % 4 {
	case 0:
		reply := make(chan struct{})
		jobs <- reply
		<-reply
	case 1:
		ledger.Lock()
		time.Sleep(15 * time.Millisecond)
		ledger.Unlock()
		spin(time.Millisecond)
	case 2:
		var both sync.WaitGroup
		both.Add(2)
		for i := 0; i < 2; i++ {
			go func() {
				defer both.Done()
				spin(time.Millisecond)
				time.Sleep(20 * time.Millisecond)
			}()
		}
		both.Wait()
	default:
		time.Sleep(20 * time.Millisecond)
	}
}

func converse(connection net.Conn, number int) {
	defer connection.Close()
	buffer := make([]byte, 4096)
	for {
		// The client asks for nothing before it has the last answer. Its requests are small.
		if read, err := connection.Read(buffer); err != nil || read == 0 {
			return
		}
		answer(number)
		done := []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		if _, err := connection.Write(done); err != nil {
			return
		}
	}
}

func main() {
	// The first thread that the runtime starts.
	sysmon := 0
	for _, tid := range threads() {
		if tid > os.Getpid() && (sysmon == 0 || tid < sysmon) {
			sysmon = tid
		}
	}
	name(sysmon)
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			name(sysmon)
		}
	}()
	for i := 0; i < 3; i++ {
		go helper()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	for number := 0; ; number++ {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go converse(connection, number)
	}
}
