// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

const (
	probeInterval = 10 * time.Millisecond
	// probeLimit is how long one answer may take. An address of a Pod that is gone often does not answer at all.
	probeLimit = 500 * time.Millisecond
)

// probeAnswer is one of an app's, or of its stats.
type probeAnswer struct {
	asked, at time.Time
	// revision and index are those of the instance that answered.
	revision, index string
	// running and rows are what stats say, in body.
	running, rows int
	body          string
}

// appProbe asks every Pod that an app ever had, past any Service, and its stats, again and again.
type appProbe struct {
	pushedApp
	http *http.Client
	stop context.CancelFunc
	work sync.WaitGroup

	mu             sync.Mutex
	answers, stats []probeAnswer
	// lastSeen is when a Pod of a revision was seen last.
	lastSeen map[string]time.Time
}

func (a pushedApp) startProbe(t *testing.T) *appProbe {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &appProbe{pushedApp: a, stop: cancel, lastSeen: map[string]time.Time{}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeLimit}}
	seen := map[string]bool{}
	p.repeat(ctx, func() {
		for _, pod := range a.listInstances(t) {
			p.lastSeen[pod.Labels[korifiv1alpha1.VersionLabel]] = time.Now()
			if ip := pod.Status.PodIP; ip != "" && !seen[ip] {
				seen[ip] = true
				p.repeat(ctx, func() { p.askPod(ip) })
			}
		}
	})
	p.repeat(ctx, func() { p.askStats(ctx, t) })
	return p
}

func (p *appProbe) repeat(ctx context.Context, f func()) {
	p.work.Go(func() {
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			f()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}

// stopAndRead returns what was answered.
func (p *appProbe) stopAndRead() (answers, stats []probeAnswer) {
	p.stop()
	p.work.Wait()
	return p.answers, p.stats
}

// goneAt is when the last Pod of a revision was; it may be asked for once the probe has ended.
func (p *appProbe) goneAt(revision string) time.Time { return p.lastSeen[revision] }

func (p *appProbe) askPod(ip string) {
	asked := time.Now()
	env, err := readEnvironment(p.http, "http://"+ip+":8080/")
	if err != nil {
		return
	}
	got := probeAnswer{asked: asked, at: time.Now(), revision: revisionFromEnv(env), index: env["CF_INSTANCE_INDEX"]}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, got)
}

func (p *appProbe) askStats(ctx context.Context, t *testing.T) {
	asked := time.Now()
	got, err := p.requestAs(t, p.carol, http.StatusOK, "GET", p.path("/processes/web/stats"), "")
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats = append(p.stats, probeAnswer{
		asked: asked, at: time.Now(), running: strings.Count(got.Body, `"`+string(korifiv1alpha1.RunningInstance)+`"`), rows: strings.Count(got.Body, `"index":`), body: got.Body,
	})
}

// waitForAnswers waits until as many instances of a revision have answered since a time.
func (p *appProbe) waitForAnswers(t *testing.T, revision string, instances int, since time.Time) {
	t.Helper()
	eventually(t, "revision "+revision+" answers", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		from := map[string]bool{}
		for _, a := range p.answers {
			if a.revision == revision && a.asked.After(since) {
				from[a.index] = true
			}
		}
		if len(from) < instances {
			return errors.New("not yet")
		}
		return nil
	})
}

// readEnvironment is what an instance says that it was given.
func readEnvironment(client *http.Client, url string) (map[string]string, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var env map[string]string
	return env, json.NewDecoder(response.Body).Decode(&env)
}

// revisionFromEnv is the revision in the environment of an instance.
func revisionFromEnv(env map[string]string) string {
	var application struct {
		Version string `json:"application_version"`
	}
	if json.Unmarshal([]byte(env["VCAP_APPLICATION"]), &application) != nil {
		return ""
	}
	return application.Version
}

// longestGap is the longest time between two answers that follow each other.
func longestGap(answers []probeAnswer) time.Duration {
	var gap time.Duration
	for i := 1; i < len(answers); i++ {
		gap = max(gap, answers[i].at.Sub(answers[i-1].at))
	}
	return gap
}

// firstAndLast are the first and the last answer of a revision; nil if there is none.
func firstAndLast(answers []probeAnswer, revision string) (first, last *probeAnswer) {
	for i := range answers {
		if answers[i].revision != revision {
			continue
		}
		if first == nil {
			first = &answers[i]
		}
		last = &answers[i]
	}
	return first, last
}

// serviceTraffic are requests through a Service, one after the other, each on a connection of its own.
type serviceTraffic struct {
	answers []probeAnswer
	refused []error
}

// startTraffic goes on until end is called.
func (a pushedApp) startTraffic(t *testing.T, url string) (end func() serviceTraffic) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &appProbe{http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeLimit}}
	var all serviceTraffic
	p.repeat(ctx, func() {
		asked := time.Now()
		env, err := readEnvironment(p.http, url)
		if err != nil {
			all.refused = append(all.refused, err)
			return
		}
		all.answers = append(all.answers, probeAnswer{asked: asked, at: time.Now(), revision: revisionFromEnv(env)})
	})
	return func() serviceTraffic {
		cancel()
		p.work.Wait()
		return all
	}
}

// instanceStats is one instance as stats show it.
type instanceStats struct {
	Index   int    `json:"index"`
	State   string `json:"state"`
	Details string `json:"details"`
}

// readStats are the app's stats.
func (a pushedApp) readStats(t *testing.T) []instanceStats {
	t.Helper()
	var stats struct {
		Resources []instanceStats `json:"resources"`
	}
	body := a.mustRequest(t, http.StatusOK, "GET", a.path("/processes/web/stats"), "").Body
	if err := json.Unmarshal([]byte(body), &stats); err != nil {
		t.Fatal(err)
	}
	return stats.Resources
}

// waitUntilRunning waits until stats say that all instances run, and returns when that was.
func (a pushedApp) waitUntilRunning(t *testing.T, instances int) time.Time {
	t.Helper()
	eventually(t, "all instances run", func() error {
		got, err := a.request(t, http.StatusOK, "GET", a.path("/processes/web/stats"), "")
		if err == nil && (strings.Count(got.Body, `"RUNNING"`) != instances || conversation.JSONField(t, got.Body, "resources.0.state") != "RUNNING") {
			err = errors.New("found " + got.Body)
		}
		return err
	})
	return time.Now()
}
