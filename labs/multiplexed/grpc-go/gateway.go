package main

import (
	"context"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
)

// So many calls has each third request, one after another, where they come in rows.
const row = 12

// The clock that all processes of a machine share; Go's own has another beginning.
func nowMs() float64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano()) / 1e6
}

// What becomes of a request when.
type said struct {
	Read  float64      `json:"read"`
	Begun float64      `json:"begun"`
	Ended float64      `json:"ended"`
	Calls [][2]float64 `json:"calls"`
	lock  sync.Mutex
}

func (said *said) call(peer *grpc.ClientConn) {
	begun, question, answer := nowMs(), []byte("question"), []byte(nil)
	if err := peer.Invoke(context.Background(), "/lab/quick", &question, &answer); err != nil {
		log.Fatal(err)
	}
	said.lock.Lock()
	said.Calls = append(said.Calls, [2]float64{begun, nowMs()})
	said.lock.Unlock()
}

// Answers HTTP/1, and makes calls for it, all over one connection:
//
//	once     one for each request
//	rows     a row of them for each third one
//	at-once  … all of which are made at the same time
//	limit    one for each, and no more than two at a time
func gateway(how, address string) {
	encoding.RegisterCodec(plain{})
	peer, err := grpc.NewClient(
		address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var requests atomic.Int64
	places := make(chan struct{}, 2)
	serve := func(response http.ResponseWriter, _ *http.Request) {
		said := said{Read: nowMs()}
		many := requests.Add(1)%3 == 0
		if how == "limit" {
			places <- struct{}{}
		}
		said.Begun = nowMs()
		switch {
		case how == "rows" && many:
			for range row {
				said.call(peer)
			}
		case how == "at-once" && many:
			var all sync.WaitGroup
			for range row {
				all.Go(func() { said.call(peer) })
			}
			all.Wait()
		default:
			said.call(peer)
		}
		said.Ended = nowMs()
		if how == "limit" {
			<-places
		}
		if err := json.NewEncoder(response).Encode(&said); err != nil {
			log.Fatal(err)
		}
	}
	ready(listener)
	log.Fatal(http.Serve(listener, http.HandlerFunc(serve)))
}
