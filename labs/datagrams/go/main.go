// Answers questions in datagrams, each of which takes 25 ms: one at a time, or each in a goroutine
// of its own. A question is two bytes, which the answer repeats, and a number.
//
//	datagrams one|each
package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const takes = 25 * time.Millisecond

// Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share.
func nowMs() float64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return float64(now.Nano()) / 1e6
}

//go:noinline
func answer(socket *net.UDPConn, question []byte, who netip.AddrPort, read float64) {
	begun := nowMs()
	time.Sleep(takes)
	said := fmt.Sprintf(`{"read": %f, "begun": %f, "ended": %f}`, read, begun, nowMs())
	socket.WriteToUDPAddrPort(append(question[:2:2], said...), who)
}

func main() {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		panic(err)
	}
	said := fmt.Sprintf("%d %s\n", os.Getpid(), socket.LocalAddr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(said), 0o644); err != nil {
		panic(err)
	}
	for {
		question := make([]byte, 2048)
		n, who, err := socket.ReadFromUDPAddrPort(question)
		if err != nil {
			panic(err)
		}
		if os.Args[1] == "one" {
			answer(socket, question[:n], who, nowMs())
		} else {
			go answer(socket, question[:n], who, nowMs())
		}
	}
}
