// A gRPC server whose calls sleep: /lab/quick for 10 ms, /lab/slow for 300 ms. With --locked each
// does so with a lock held.
//
//	server [--locked]
//	server gateway HOW PEER   answers HTTP/1, and asks such a server; see gateway.go
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// Messages as they are.
type plain struct{}

func (plain) Name() string { return "proto" }

func (plain) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (plain) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

var accounts sync.Mutex

func updateAccounts(takes time.Duration) {
	accounts.Lock()
	defer accounts.Unlock()
	time.Sleep(takes)
}

func call(takes time.Duration, locked bool) grpc.MethodHandler {
	return func(
		_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
	) (any, error) {
		var question []byte
		if err := decode(&question); err != nil {
			return nil, err
		}
		if locked {
			updateAccounts(takes)
		} else {
			time.Sleep(takes)
		}
		answer := []byte("answer")
		return &answer, nil
	}
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "gateway" {
		gateway(os.Args[2], os.Args[3])
	}
	locked := len(os.Args) == 2 && os.Args[1] == "--locked"
	encoding.RegisterCodec(plain{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "lab",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "quick", Handler: call(10*time.Millisecond, locked)},
			{MethodName: "slow", Handler: call(300*time.Millisecond, locked)},
		},
	}, struct{}{})
	ready(listener)
	log.Fatal(server.Serve(listener))
}

func ready(listener net.Listener) {
	says := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(says), 0o644); err != nil {
		log.Fatal(err)
	}
}
