// Goroutines that wait, each for something of its own. Each prints first what it is in, a function
// in which it will wait that no compiler inlines, and its address.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

func own() uintptr

var (
	held    sync.Mutex
	shared  sync.RWMutex
	full    = make(chan int)
	empty   = make(chan int)
	tokens  = make(chan struct{}, 1)
	group   sync.WaitGroup
	changed = sync.NewCond(&sync.Mutex{})
)

func say(what string) {
	fmt.Println(what, own())
}

//go:noinline
func waitForLock() {
	say("main.waitForLock sync.(*Mutex).lockSlow")
	held.Lock()
}

//go:noinline
func waitToRead() {
	say("main.waitToRead sync.runtime_SemacquireRWMutexR")
	shared.RLock()
}

//go:noinline
func waitToSend() {
	say("main.waitToSend runtime.chansend")
	full <- 1
}

//go:noinline
func waitToReceive() {
	say("main.waitToReceive runtime.chanrecv")
	<-empty
}

//go:noinline
func waitForToken() {
	say("main.waitForToken runtime.chansend")
	tokens <- struct{}{}
}

//go:noinline
func waitForAny() {
	say("main.waitForAny runtime.selectgo")
	select {
	case <-empty:
	case <-time.After(time.Hour):
	}
}

//go:noinline
func waitForAll() {
	say("main.waitForAll sync.runtime_SemacquireWaitGroup")
	group.Wait()
}

//go:noinline
func waitForChange() {
	say("main.waitForChange sync.runtime_notifyListWait")
	changed.L.Lock()
	changed.Wait()
}

//go:noinline
func waitForTime() {
	say("main.waitForTime time.Sleep")
	time.Sleep(time.Hour)
}

//go:noinline
func work() {
	say("main.work -")
	for i := 0; ; i++ {
		if i < 0 {
			println(i)
		}
	}
}

func main() {
	held.Lock()
	shared.Lock()
	tokens <- struct{}{}
	group.Add(1)
	for _, wait := range []func(){
		waitForLock, waitToRead, waitToSend, waitToReceive, waitForToken, waitForAny, waitForAll,
		waitForChange, waitForTime, work,
	} {
		go wait()
	}
	var byte [1]byte
	os.Stdin.Read(byte[:])
}
