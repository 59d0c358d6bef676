// Takes jobs from a queue of SQS, ten at a time, and hands them to workers, each of which deletes
// what it is done with.
//
//	worker [-pollers N] [-workers N] ADDRESS DONE
//
// As worker.py: a job takes 40 ms, and a line of DONE has its moments.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
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
	message    types.Message
	receivedMs float64
}

//go:noinline
func resizeImage() {
	time.Sleep(40 * time.Millisecond)
}

func main() {
	pollers := flag.Int("pollers", 1, "so many ask for jobs")
	workers := flag.Int("workers", 3, "so many work at a time")
	flag.Parse()
	ctx := context.Background()
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String("http://" + flag.Arg(0)),
		Region:       "elasticmq",
		Credentials:  credentials.NewStaticCredentialsProvider("x", "x", ""),
	})
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("jobs")})
	if err != nil {
		log.Fatal(err)
	}
	done, err := os.Create(flag.Arg(1))
	if err != nil {
		log.Fatal(err)
	}
	jobs := make(chan job, 100)
	var writing sync.Mutex
	for i := 0; i < *workers; i++ {
		go func() {
			for one := range jobs {
				takenMs := nowMs()
				resizeImage()
				_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
					QueueUrl: made.QueueUrl, ReceiptHandle: one.message.ReceiptHandle,
				})
				if err != nil {
					log.Fatal(err)
				}
				endMs := nowMs()
				writing.Lock()
				fmt.Fprintf(done, "%s %f %f %f\n", *one.message.Body, one.receivedMs, takenMs, endMs)
				writing.Unlock()
			}
		}()
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), flag.Arg(0))
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o644); err != nil {
		log.Fatal(err)
	}
	for i := 0; i < *pollers; i++ {
		go func() {
			for {
				got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
					QueueUrl: made.QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 2,
				})
				if err != nil {
					log.Fatal(err)
				}
				for _, message := range got.Messages {
					jobs <- job{message, nowMs()}
				}
			}
		}()
	}
	select {}
}
