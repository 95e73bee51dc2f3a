// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Pool lends API servers to tests. Each API server is lent to one test at a time. When the test ends, the pool deletes
// the objects that the test has created, and lends the API server again. The pool ends an API server whose initial
// objects have changed, or whose test has failed. A start takes longer than most tests.
type Pool struct {
	suite *Suite
	start func(testing.TB) *Environment

	mu   sync.Mutex
	idle []*pooledServer
}

// pooledServer is an API server with the versions of its initial objects, by their keys in etcd.
type pooledServer struct {
	*Environment
	initial map[string]string
}

// NewPool returns a pool of API servers that start creates. start must skip or fail only through the TB that it
// receives.
func NewPool(suite *Suite, start func(testing.TB) *Environment) *Pool {
	return &Pool{suite: suite, start: start}
}

// Borrow returns an API server that no other test uses until the test ends. It contains only the objects that start has
// created.
func (p *Pool) Borrow(t testing.TB) *Environment {
	t.Helper()
	s := p.takeIdle()
	if s == nil {
		s = p.startServer(t)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
		defer cancel()
		err := errors.New("the test has failed")
		if !t.Failed() {
			err = s.restore(ctx)
		}
		if err != nil {
			t.Logf("the API server is not lent again: %v", err)
			s.KillAtOnce(t)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, s)
	})
	lent := *s.Environment
	lent.Config = rest.CopyConfig(s.Config)
	return &lent
}

func (p *Pool) takeIdle() *pooledServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	s := p.idle[last]
	p.idle = p.idle[:last]
	return s
}

func (p *Pool) startServer(t testing.TB) *pooledServer {
	t.Helper()
	s := &pooledServer{}
	isStarted, skipped := p.suite.startShared(t, func(tb testing.TB) {
		s.Environment = p.start(tb)
		var err error
		s.initial, err = s.listVersions(tb.Context())
		ExpectNoError(tb, err)
	})
	requireStarted(t, isStarted, skipped)
	return s
}

// restore deletes all objects that are not initial. It returns an error if the API server cannot be lent again.
func (s *pooledServer) restore(ctx context.Context) error {
	versions, err := s.listVersions(ctx)
	if err != nil {
		return err
	}
	for key, version := range s.initial {
		if versions[key] != version && !isRenewed(key) {
			return fmt.Errorf("expected an unchanged %s", key)
		}
	}
	for key := range versions {
		if _, isInitial := s.initial[key]; !isInitial && isConfiguration(key) {
			return fmt.Errorf("expected no further configuration of the API server, found %s", key)
		}
	}
	for key := range versions {
		if _, isInitial := s.initial[key]; isInitial || isRenewed(key) {
			continue
		}
		if err := s.AskEtcd(ctx, "deleterange", map[string][]byte{"key": []byte(key)}, nil); err != nil {
			return err
		}
	}
	return nil
}

// isRenewed reports whether the API server itself changes an object while it runs.
func isRenewed(key string) bool {
	return isStoredBelow(key, "leases/kube-system/", "masterleases/", "peerserverleases/", "flowschemas/", "prioritylevelconfigurations/", "ranges/")
}

// isConfiguration reports whether an object changes how the API server answers, perhaps with a delay.
func isConfiguration(key string) bool {
	return isStoredBelow(key, "apiextensions.k8s.io/", "apiregistration.k8s.io/", "clusterrole", "validating", "mutating")
}

func isStoredBelow(key string, places ...string) bool {
	return slices.ContainsFunc(places, func(place string) bool { return strings.HasPrefix(key, etcdPrefix+place) })
}

// etcdPrefix precedes the keys of all objects in etcd, and etcdEnd follows them.
const etcdPrefix, etcdEnd = "/registry/", "/registry0"

// listVersions returns the versions of all objects, by their keys in etcd.
func (e *Environment) listVersions(ctx context.Context) (map[string]string, error) {
	all, err := e.ListEtcd(ctx, true)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("expected the objects of the API server in etcd, found none")
	}
	versions := map[string]string{}
	for _, o := range all {
		versions[string(o.Key)] = o.Version
	}
	return versions, nil
}

// EtcdObject is an object as the API server stores it in etcd: protobuf for built-in kinds, and JSON for others.
type EtcdObject struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	// Version is the revision of the last change.
	Version string `json:"mod_revision,omitempty"`
}

// ListEtcd returns all objects of the API server from its etcd, or only their keys and versions.
func (e *Environment) ListEtcd(ctx context.Context, isKeysOnly bool) ([]EtcdObject, error) {
	var answer struct {
		KVs []EtcdObject `json:"kvs"`
	}
	err := e.AskEtcd(ctx, "range", map[string]any{"key": []byte(etcdPrefix), "range_end": []byte(etcdEnd), "keys_only": isKeysOnly}, &answer)
	return answer.KVs, err
}

// AskEtcd sends a request to the HTTP gateway of the API server's etcd. The request is "range", "deleterange" or "txn".
func (e *Environment) AskEtcd(ctx context.Context, request string, body, into any) error {
	raw, err := os.ReadFile(filepath.Join(e.dir, "ports.json"))
	if err != nil {
		return err
	}
	var ports struct {
		EtcdClient int `json:"etcdClient"`
	}
	if err = json.Unmarshal(raw, &ports); err == nil {
		raw, err = json.Marshal(body)
	}
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/v3/kv/%s", ports.EtcdClient, request)
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(call)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable: // etcd is overloaded.
		return k8serrors.NewTimeoutError(request, 0)
	default:
		return fmt.Errorf("%s: found %s", request, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
