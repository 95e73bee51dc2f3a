// SPDX-License-Identifier: Apache-2.0

// Command webapp is the app of the tests with real pods: it answers with its environment on $PORT, and misbehaves on request.
//
// $STOP_DELAY is how long it goes on answering after SIGTERM, $EXIT the status that it ends with at once, $EAT how many MiB
// of memory it takes, and $SICK makes its health check fail from the start on.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
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
		fmt.Printf("ends at once with status %s\n", status)
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
	go func() { _ = server.Serve(listener) }() // POST /deaf closes the listener, and the app runs on.
	fmt.Printf("listens on %s\n", listener.Addr())
	<-stopping.Done()
	fmt.Printf("was told to end, and answers for another %s\n", delay)
	time.Sleep(delay)
	ctx, cancel := context.WithTimeout(context.Background(), headerLimit)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("end what was asked: %w", err)
	}
	fmt.Println("ends")
	return nil
}

// exitWithStatus ends the process with a status.
func exitWithStatus(status string) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("read a status: %w", err)
	}
	os.Exit(code)
	return nil
}

// takeMemory takes memory and keeps none of it, once it was had.
func takeMemory(mebibytes string) error {
	n, err := strconv.Atoi(mebibytes)
	if err != nil {
		return fmt.Errorf("read EAT: %w", err)
	}
	const mebibyte, page = 1 << 20, 4 << 10
	food := make([]byte, n*mebibyte)
	for i := 0; i < len(food); i += page {
		food[i] = 1
	}
	return nil
}
