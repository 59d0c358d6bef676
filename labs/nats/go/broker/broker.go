// A server of NATS with JetStream, in memory: broker FOLDER. Says PID ADDRESS in the file that
// READY_FILE names.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func main() {
	broker, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: os.Args[1], NoSigs: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	go broker.Start()
	if !broker.ReadyForConnections(10 * time.Second) {
		log.Fatal("it does not listen")
	}
	connection, err := nats.Connect(broker.ClientURL())
	if err != nil {
		log.Fatal(err)
	}
	js, err := connection.JetStream()
	if err != nil {
		log.Fatal(err)
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name: "JOBS", Subjects: []string{"jobs.>"}, Storage: nats.MemoryStorage,
	})
	if err != nil {
		log.Fatal(err)
	}
	connection.Close()
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), broker.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	broker.WaitForShutdown()
}
