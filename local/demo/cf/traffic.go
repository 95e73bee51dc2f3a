// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	clients = 4
	// clientInterval is each client's pause between a response and its next request.
	clientInterval = 10 * time.Millisecond
	// patience is how long a client waits for a response. Instances answer immediately.
	patience = 5 * time.Second
)

// traffic counts the responses to clients of the app's address.
type traffic struct {
	// byRevision counts responses by the revision of the instance; refused lists the errors of all other requests.
	byRevision map[string]int
	refused    []string
}

// withTraffic counts the responses to clients during do.
func (d *appDemo) withTraffic(do func()) traffic {
	ctx, stop := context.WithCancel(d.Context)
	var (
		work sync.WaitGroup
		mu   sync.Mutex
		all  = traffic{byRevision: map[string]int{}}
	)
	for range clients {
		work.Go(func() {
			for ctx.Err() == nil {
				revision, err := d.askApp(d.Context)
				mu.Lock()
				if err != nil {
					all.refused = append(all.refused, err.Error())
				} else {
					all.byRevision[revision]++
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(clientInterval):
				}
			}
		})
	}
	defer work.Wait()
	defer stop()
	do()
	stop()
	work.Wait()
	return all
}

func (t traffic) String() string {
	var by []string
	total := len(t.refused)
	for _, revision := range slices.Sorted(maps.Keys(t.byRevision)) {
		total += t.byRevision[revision]
		by = append(by, fmt.Sprintf("%d answered by revision %s", t.byRevision[revision], revision))
	}
	return fmt.Sprintf("%d requests at %s: %s, %d refused", total, address, strings.Join(by, ", "), len(t.refused))
}

// expectAnswers prints the responses to the clients. It expects that no request was refused, and that only the given
// revisions have answered.
func (d *appDemo) expectAnswers(found traffic, revisions ...string) {
	expectThat(len(found.refused) == 0, fmt.Sprintf("%s; first: %s", found, strings.Join(found.refused[:min(1, len(found.refused))], "")))
	expectThat(slices.Equal(slices.Sorted(maps.Keys(found.byRevision)), revisions), found.String())
	d.PrintObserved("%s", found)
}

// newVisitor returns a client that connects to the gateway for all addresses, with a new connection for each
// request.
func newVisitor(gateway string) *http.Client {
	dialGateway := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, gateway)
	}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialGateway}}
}

// askApp sends a request to the app's address, and returns the revision of the instance that answers.
func (d *appDemo) askApp(ctx context.Context) (revision string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("create request: %w", err)
	}
	response, err := d.visitor.Do(r)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("expected 200, found %s", response.Status)
	}
	var instance struct{ Labels map[string]string }
	if err := json.NewDecoder(response.Body).Decode(&instance); err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	for name, value := range instance.Labels {
		if strings.HasSuffix(name, versionLabel) {
			return value, nil
		}
	}
	return "", errors.New("expected the answer of an instance with a revision, found another answer")
}
