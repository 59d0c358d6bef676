// A server whose handler sleeps, and clients of it that have several requests at once on one
// connection, or one:
//
//	multiplexed PROTOCOL                  the server, on a port of the system's choice
//	multiplexed PROTOCOL load ADDRESS     the clients
//
// PROTOCOL: h2c (HTTP/2 in clear text), h2 (in TLS), http1 or https1. With h2c-lock and h2-lock
// each request takes 10 ms with a lock held, and with …-unlocked without it.
//
// Asked for /long, h2c sends 512 KiB at once, and for /bit-by-bit with a pause after each 64.
//
// One request in ten takes 300 ms, the others 10 ms. With h2 and h2c, four connections have eight
// of them at once each; with HTTP/1.1, eight connections have one. There, one client sends its
// request's body in pieces, one is sent its answer in pieces, and one both.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	connections = 4
	streams     = 8
	single      = 8
	slow        = 300 * time.Millisecond
	quick       = 10 * time.Millisecond
	piece       = 20 * time.Millisecond
	pieces      = 3
	long        = 512 << 10
	lasts       = 2 * time.Second
)

var held sync.Mutex

func main() {
	if len(os.Args) == 4 && os.Args[2] == "load" {
		load(os.Args[1], os.Args[3])
		return
	}
	serve(os.Args[1])
}

func protocols(protocol string) *http.Protocols {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(strings.HasSuffix(protocol, "1"))
	speaks.SetHTTP2(isHTTP2(protocol) && !isClear(protocol))
	speaks.SetUnencryptedHTTP2(isClear(protocol))
	return speaks
}

func isClear(protocol string) bool { return strings.HasPrefix(protocol, "h2c") }

func isHTTP2(protocol string) bool { return strings.HasPrefix(protocol, "h2") }

func inTLS(protocol string) bool {
	return protocol == "https1" || isHTTP2(protocol) && !isClear(protocol)
}

func serve(protocol string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Handler:   handler(protocol),
		Protocols: protocols(protocol),
		// A client that goes away is no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	if inTLS(protocol) {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
		log.Fatal(server.ServeTLS(listener, "", ""))
	}
	log.Fatal(server.Serve(listener))
}

func handler(protocol string) http.HandlerFunc {
	switch protocol {
	case "h2c-lock", "h2-lock":
		return func(response http.ResponseWriter, _ *http.Request) { underLock() }
	case "h2c-unlocked", "h2-unlocked":
		return func(response http.ResponseWriter, _ *http.Request) { time.Sleep(quick) }
	}
	return answer
}

//go:noinline
func underLock() {
	held.Lock()
	defer held.Unlock()
	time.Sleep(quick)
}

func answer(response http.ResponseWriter, request *http.Request) {
	io.Copy(io.Discard, request.Body)
	switch request.URL.Path {
	case "/slow":
		time.Sleep(slow)
	case "/quick":
		time.Sleep(quick)
	case "/long":
		response.Write(make([]byte, long))
		return
	case "/bit-by-bit":
		for sent := 0; sent < long; sent += long / 8 {
			response.Write(make([]byte, long/8))
			http.NewResponseController(response).Flush()
			time.Sleep(piece)
		}
		return
	case "/pieces":
		for sent := 0; sent < pieces; sent++ {
			response.Write(make([]byte, 1000))
			http.NewResponseController(response).Flush()
			time.Sleep(piece)
		}
	}
	io.WriteString(response, "done\n")
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

// A body that comes in pieces.
type slowBody struct {
	left int
}

func (body *slowBody) Read(into []byte) (int, error) {
	if body.left == 0 {
		return 0, io.EOF
	}
	body.left--
	time.Sleep(piece)
	return copy(into, bytes.Repeat([]byte("x"), 1000)), nil
}

// What one of those asks who ask one thing at a time on a connection.
type asker struct {
	client *http.Client
	url    string
	number int
	// Whether one in ten of its answers is long: others of its connection ask meanwhile, which is all
	// that shows what TLS carries.
	long bool
	took []time.Duration
}

func (asker *asker) ask(sent int) {
	path := "/quick"
	var body io.Reader
	switch {
	case asker.number == 1 || asker.number == 3:
		path = "/pieces"
	case (sent+asker.number)%10 == 0:
		path = "/slow"
	case asker.long && (sent+asker.number)%10 == 5:
		path = "/long"
	}
	if asker.number == 2 || asker.number == 3 {
		body = &slowBody{pieces}
	}
	begun := time.Now()
	response, err := asker.client.Post(asker.url+path, "text/plain", body)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		log.Fatal(err)
	}
	response.Body.Close()
	asker.took = append(asker.took, time.Since(begun))
}

func load(protocol, address string) {
	url := "http://" + address
	if inTLS(protocol) {
		url = "https://" + address
	}
	several := isHTTP2(protocol)
	askers := make([]*asker, single)
	if several {
		askers = make([]*asker, connections*streams)
	}
	var client *http.Client
	for number := range askers {
		if !several || number%streams == 0 {
			client = newClient(protocol)
		}
		askers[number] = &asker{client: client, url: url, number: number, long: protocol == "h2"}
		if several {
			// None of them has pieces.
			askers[number].number += 10
		}
	}
	for _, one := range askers {
		one.ask(1)
	}
	attach()
	end := time.Now().Add(lasts)
	if isClear(protocol) && os.Getenv("ATTACH_FILE") == "" {
		// Each stream has a row: fewer of them tell as much. But of connections that were there some
		// are exchanges at first, which must be fewer than one in a hundred.
		end = time.Now().Add(lasts / 2)
	}
	if strings.HasPrefix(protocol, "h2-") {
		end = time.Now().Add(lasts / 4)
	}
	if protocol == "h2" {
		end = time.Now().Add(lasts / 2)
	}
	var all sync.WaitGroup
	for _, one := range askers {
		one.took = nil
		all.Add(1)
		go func() {
			defer all.Done()
			for sent := 0; time.Now().Before(end); sent++ {
				one.ask(sent)
			}
		}()
	}
	all.Wait()
	tell(askers)
}

func newClient(protocol string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols:       protocols(protocol),
	}, Timeout: 20 * time.Second}
}

// Lets whywait attach to the server, in the variants in which it is not there from the beginning.
func attach() {
	file := os.Getenv("ATTACH_FILE")
	if file == "" {
		return
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	log.Fatal("nobody has attached")
}

func tell(askers []*asker) {
	var took []time.Duration
	for _, one := range askers {
		took = append(took, one.took...)
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	ms := func(index int) float64 { return float64(took[index].Microseconds()) / 1e3 }
	var sum time.Duration
	for _, one := range took {
		sum += one
	}
	long := sort.Search(len(took), func(at int) bool { return took[at] >= slow })
	truth, err := json.Marshal(map[string]any{
		"requests": len(took), "slow": len(took) - long,
		"p50_ms": ms(len(took) / 2), "p99_ms": ms(len(took) * 99 / 100), "max_ms": ms(len(took) - 1),
		"load": map[string]any{"count": len(took), "sum_ms": float64(sum.Microseconds()) / 1e3},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "ground-truth: %s\n", truth)
}
