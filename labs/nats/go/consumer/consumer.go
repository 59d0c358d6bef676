// A consumer of NATS JetStream: workers work on its messages, and acknowledge each.
//
//	consumer [-how consume|fetch] [-workers N] [-work-ms N] [-locked] ADDRESS DONE
//
// A message is the moment at which it was sent. A line of DONE is that, when the library gave it to
// the consumer, when a worker took it, and when it was acknowledged, in milliseconds of the clock
// that all processes share.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

func nowMs() float64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		log.Fatal(err)
	}
	return float64(at.Nano()) / 1e6
}

type job struct {
	message    jetstream.Msg
	receivedMs float64
}

var rates sync.Mutex

//go:noinline
func resizeImage(took time.Duration) {
	time.Sleep(took)
}

//go:noinline
func lookUpRate(took time.Duration) {
	rates.Lock()
	defer rates.Unlock()
	resizeImage(took)
}

func main() {
	how := flag.String("how", "consume", "consume or fetch")
	workers := flag.Int("workers", 3, "so many work at a time")
	workMs := flag.Int("work-ms", 40, "so long each")
	locked := flag.Bool("locked", false, "one lock for all of them meanwhile")
	flag.Parse()
	address, path := flag.Arg(0), flag.Arg(1)

	connection, err := nats.Connect("nats://" + address)
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(connection)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	consumer, err := js.CreateOrUpdateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000,
	})
	if err != nil {
		log.Fatal(err)
	}
	done, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	jobs := make(chan job, 1000)
	var writing sync.Mutex
	for i := 0; i < *workers; i++ {
		go func() {
			for one := range jobs {
				takenMs := nowMs()
				if *locked {
					lookUpRate(time.Duration(*workMs) * time.Millisecond)
				} else {
					resizeImage(time.Duration(*workMs) * time.Millisecond)
				}
				if err := one.message.Ack(); err != nil {
					log.Fatal(err)
				}
				endMs := nowMs()
				writing.Lock()
				fmt.Fprintf(done, "%s %f %f %f\n", one.message.Data(), one.receivedMs, takenMs, endMs)
				writing.Unlock()
			}
		}()
	}
	take := func(message jetstream.Msg) { jobs <- job{message, nowMs()} }
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), address)
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	if *how == "consume" {
		if _, err := consumer.Consume(take); err != nil {
			log.Fatal(err)
		}
		select {}
	}
	for {
		batch, err := consumer.Fetch(10, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		for message := range batch.Messages() {
			take(message)
		}
	}
}
