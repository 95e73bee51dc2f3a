// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/go-logr/logr/funcr"
	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// The crashing manager is a process of its own: this test's program, configured by its environment. It counts its acts, which
// are the statements and the writes to the API server that change something, and kills itself with kill -9 before or
// after the act that is configured. What it does is the product's own code; only its wires are the test's.

const (
	crashKubeconfig = "TORPOR_VICTIM_KUBECONFIG"
	crashHosts      = "TORPOR_VICTIM_HOSTS"
	// crashPoint is as in "12 before"; empty crashes at no act.
	crashPoint = "TORPOR_VICTIM_POINT"
	// actLine begins the line that tells of an act.
	actLine = "act: "
)

func runCrashProcess() int {
	if err := crashingManager(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func crashingManager() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(crashKubeconfig))
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	f := newCrash(os.Getenv(crashPoint))
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return crashingAPI{next, f} })
	driver.RegisterDialContext("tcp", f.dial)
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		return err
	}
	mgr, err := manager.New(cfg, manager.Options{Scheme: known, Logger: funcr.New(func(_, args string) { fmt.Fprintln(os.Stdout, args) }, funcr.Options{}), Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	hosts := strings.Split(os.Getenv(crashHosts), ",")
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return hosts[i] }
	if err := (Controller{HostOf: host, Clock: clock.RealClock{}, Metrics: NewMetrics()}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(signals.SetupSignalHandler())
}

// crashAt is where the manager kills itself.
type crashAt struct {
	at    int64
	after bool
	acts  atomic.Int64
	// promoted is done once the manager has reported who is the primary.
	promoted sync.Once
}

func newCrash(point string) *crashAt {
	f := &crashAt{}
	number, when, _ := strings.Cut(point, " ")
	f.at, _ = strconv.ParseInt(number, 10, 64) // None is 0, and no act has that number.
	f.after = when == "after"
	return f
}

// begin counts an act and says whether the victim dies after it. It may not return.
func (f *crashAt) begin(name string) bool {
	n := f.acts.Add(1)
	fmt.Fprintf(os.Stdout, "%s%d %s\n", actLine, n, name)
	if n == f.at && !f.after {
		killSelf()
	}
	return n == f.at
}

// killSelf is kill -9 and does not return.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // It cannot be refused.
	select {}
}

// crashingAPI is the wire to the API server.
type crashingAPI struct {
	next http.RoundTripper
	*crashAt
}

// RoundTrip implements http.RoundTripper.
func (a crashingAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	name, err := a.name(r)
	if err != nil {
		return nil, err
	}
	last := name != "" && a.begin(name)
	answer, err := a.next.RoundTrip(r)
	if last {
		killSelf()
	}
	return answer, err
}

// name says what a request changes; empty for one that only reads or reports.
func (a crashingAPI) name(r *http.Request) (string, error) {
	if r.Method != http.MethodPatch || r.Body == nil {
		return "", nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch path := r.URL.Path; {
	case strings.Contains(path, "/pods/"):
		return "patch Pod " + string(regexp.MustCompile(`"(labels|annotations)":.*`).Find(body)), nil
	case strings.Contains(path, "/mysqlclusters/") && bytes.Contains(body, []byte(`"currentPrimaryIndex"`)):
		return "promote", nil
	case strings.Contains(path, "/mysqlclusters/") && bytes.Contains(body, []byte(`"role":"primary"`)):
		name := ""
		a.promoted.Do(func() { name = "tell the primary" })
		return name, nil
	}
	return "", nil
}

// dial makes a wire to a server.
func (f *crashAt) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &crashingConn{Conn: c, crashAt: f}, nil
}

// crashingConn is the wire to a server.
type crashingConn struct {
	net.Conn
	*crashAt
	last atomic.Bool
}

// Write implements net.Conn. The driver writes a statement at once: a header of four bytes, a command, and the text.
func (c *crashingConn) Write(b []byte) (int, error) {
	const header, query = 4, 3
	if len(b) > header && b[3] == 0 && b[header] == query {
		if name := nameOfStatement(string(b[header+1:])); name != "" {
			c.last.Store(c.begin(name))
		}
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *crashingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.last.Load() {
		killSelf()
	}
	return n, err
}

// nameOfStatement is how an act begins, without numbers and secrets; empty for one that only reads.
func nameOfStatement(text string) string {
	const words = 4
	rest, act := strings.CutPrefix(text, "/* torpor */ ")
	if !act && !strings.HasPrefix(text, "clone ") {
		return ""
	}
	fields := strings.Fields(rest)
	return strings.Join(fields[:min(words, len(fields))], " ")
}
