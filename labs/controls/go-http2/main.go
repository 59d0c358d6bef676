// A healthy server over HTTP/2 (net/http with TLS), and clients of it that have one connection each
// and pause between their requests:
//
//	go-http2                  the server, on a port of the system's choice
//	go-http2 load ADDRESS     the clients
//
// HTTP/2's clients acknowledge settings and say that they have room for more data: the server reads
// that after it has answered, and answers nothing to it.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	clients  = 4
	requests = 5
	pause    = 400 * time.Millisecond
	size     = 200_000
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "load" {
		load("https://" + os.Args[2])
		return
	}
	serve()
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	answer := func(response http.ResponseWriter, request *http.Request) {
		response.Write(make([]byte, size))
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}},
		Handler:   http.HandlerFunc(answer),
		// A client that goes away is no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ServeTLS(listener, "", ""))
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	until := time.Now().Add(48 * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func load(url string) {
	var all sync.WaitGroup
	longest := make([]time.Duration, clients)
	for number := range longest {
		all.Add(1)
		go func(longest *time.Duration) {
			defer all.Done()
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
				ForceAttemptHTTP2: true,
			}}
			for sent := 0; sent < requests; sent++ {
				begun := time.Now()
				response, err := client.Get(url)
				if err != nil {
					log.Fatal(err)
				}
				if response.ProtoMajor != 2 {
					log.Fatalf("it speaks %s", response.Proto)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					log.Fatal(err)
				}
				response.Body.Close()
				if took := time.Since(begun); took > *longest {
					*longest = took
				}
				time.Sleep(pause)
			}
		}(&longest[number])
	}
	all.Wait()
	most := time.Duration(0)
	for _, one := range longest {
		if one > most {
			most = one
		}
	}
	fmt.Fprintf(os.Stderr, "ground-truth: {\"requests\": %d, \"longest_ms\": %.1f}\n",
		clients*requests, float64(most.Microseconds())/1e3)
	// As in other labs: the schedule did not come about.
	if most > pause/4 {
		os.Exit(75)
	}
}
