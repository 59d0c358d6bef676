// A server that asks a database for each request and answers with what became of it when.
//
//	go-server [-max-open N] DATABASE
//
// It is database/sql with its pool of connections, which has no limit unless one is given.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"unsafe"

	_ "github.com/lib/pq"
)

var (
	maxOpen = flag.Int("max-open", 0, "so many connections to the database at most")
	maxIdle = flag.Int("max-idle", 64, "so many connections are kept")
	query   = flag.String("query", "SELECT pg_sleep(0.05)", "what the database is asked")
)

// The clock that all processes of a machine share; Go's own has another beginning.
func nowMs() float64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano()) / 1e6
}

// The query, from when it has a connection until its rows are read.
//
//go:noinline
func fetchReport(database *sql.DB) [2]float64 {
	connection, err := database.Conn(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	begun := nowMs()
	var report sql.NullString
	if err := connection.QueryRowContext(context.Background(), *query).Scan(&report); err != nil {
		log.Fatal(err)
	}
	return [2]float64{begun, nowMs()}
}

func main() {
	flag.Parse()
	host, port, err := net.SplitHostPort(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	database, err := sql.Open("postgres",
		fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable", host, port))
	if err != nil {
		log.Fatal(err)
	}
	database.SetMaxOpenConns(*maxOpen)
	database.SetMaxIdleConns(*maxIdle)
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		read := nowMs()
		call := fetchReport(database)
		body, err := json.Marshal(map[string]any{
			"read": read, "begun": call[0], "ended": call[1], "calls": [][2]float64{call}})
		if err != nil {
			log.Fatal(err)
		}
		writer.Header().Set("Content-Length", fmt.Sprint(len(body)))
		writer.Write(body)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ready := fmt.Sprintf("%d %s\n", os.Getpid(), listener.Addr())
	if err := os.WriteFile(os.Getenv("READY_FILE"), []byte(ready), 0o600); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
