// A gRPC server whose calls sleep: /lab/quick for 10 ms, /lab/slow for 300 ms. With --locked each
// does so with a lock held.
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
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
