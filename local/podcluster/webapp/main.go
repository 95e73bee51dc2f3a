// SPDX-License-Identifier: Apache-2.0

// Command webapp is the app of the tests with real pods. It answers with its environment on $PORT, and simulates
// failures on request.
//
// $STOP_DELAY is how long it continues to answer after SIGTERM, $EXIT makes it exit immediately with that status,
// $EAT is the memory that it allocates in MiB, and $SICK makes its health check fail from the start.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const headerLimit = 5 * time.Second

func main() {
	if err := runApp(); err != nil {
		fmt.Fprintln(os.Stderr, "webapp:", err)
		os.Exit(1)
	}
}

func runApp() error {
	if status := os.Getenv("EXIT"); status != "" {
		fmt.Printf("the app ends at once with status %s\n", status)
		return exitWithStatus(status)
	}
	if err := takeMemory(cmp.Or(os.Getenv("EAT"), "0")); err != nil {
		return err
	}
	delay, err := time.ParseDuration(cmp.Or(os.Getenv("STOP_DELAY"), "0s"))
	if err != nil {
		return fmt.Errorf("read STOP_DELAY: %w", err)
	}
	stopping, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	listener, err := (&net.ListenConfig{}).Listen(stopping, "tcp", ":"+os.Getenv("PORT"))
	if err != nil {
		return fmt.Errorf("listen on $PORT: %w", err)
	}
	server := &http.Server{Handler: newApp(listener).routes(), ReadHeaderTimeout: headerLimit}
	go func() { _ = server.Serve(listener) }() // POST /deaf closes the listener, and the app keeps running.
	fmt.Printf("listens on %s\n", listener.Addr())
	<-stopping.Done()
	fmt.Printf("got SIGTERM, and answers for another %s\n", delay)
	time.Sleep(delay)
	ctx, cancel := context.WithTimeout(context.Background(), headerLimit)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("finish open requests: %w", err)
	}
	fmt.Println("ends")
	return nil
}

func exitWithStatus(status string) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("read a status: %w", err)
	}
	os.Exit(code)
	return nil
}

// takeMemory allocates memory, and releases it after use.
func takeMemory(mebibytes string) error {
	n, err := strconv.Atoi(mebibytes)
	if err != nil {
		return fmt.Errorf("parse $EAT: %w", err)
	}
	const mebibyte, page = 1 << 20, 4 << 10
	food := make([]byte, n*mebibyte)
	for i := 0; i < len(food); i += page {
		food[i] = 1
	}
	return nil
}

type webApp struct {
	listener net.Listener
	sick     atomic.Bool
}

func newApp(listener net.Listener) *webApp {
	a := &webApp{listener: listener}
	a.sick.Store(os.Getenv("SICK") != "")
	return a
}

func (a *webApp) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.showEnvironment)
	mux.HandleFunc("GET /health", a.serveHealth)
	mux.HandleFunc("POST /say/{line}", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.PathValue("line")) })
	mux.HandleFunc("POST /sick", func(http.ResponseWriter, *http.Request) { a.sick.Store(true) })
	mux.HandleFunc("POST /deaf", func(http.ResponseWriter, *http.Request) { _ = a.listener.Close() })
	mux.HandleFunc("POST /exit/{status}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("ends with status %s\n", r.PathValue("status"))
		if err := exitWithStatus(r.PathValue("status")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	return mux
}

// showEnvironment answers with the environment of the instance. Tests use it to identify the instance.
func (a *webApp) showEnvironment(w http.ResponseWriter, _ *http.Request) {
	all := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // A client that has disconnected needs no response.
}

func (a *webApp) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if a.sick.Load() {
		http.Error(w, "sick", http.StatusInternalServerError)
	}
}
