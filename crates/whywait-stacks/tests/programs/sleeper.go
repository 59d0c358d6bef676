// Blocks a goroutine's thread in a system call, below functions that the compiler may not inline.
package main

import "syscall"

//go:noinline
func innermost(n int) int {
	var room [64]byte
	tv := syscall.Timespec{Sec: 1000}
	syscall.Nanosleep(&tv, nil)
	return int(room[n]) + n
}

//go:noinline
func middle(n int) int {
	return innermost(n+1) + 1
}

func main() {
	println(middle(2))
}
