// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// webApp is what the web app does when it is asked.
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

// showEnvironment answers with all that the instance was given, by which a test knows who answers.
func (a *webApp) showEnvironment(w http.ResponseWriter, _ *http.Request) {
	all := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // A client that has gone away needs no answer.
}

func (a *webApp) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if a.sick.Load() {
		http.Error(w, "sick", http.StatusInternalServerError)
	}
}
