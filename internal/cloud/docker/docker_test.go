// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	nodeImage = "node:1"
	// quickNode exits when it receives the signal. slowNode takes a second longer than the actuator waits.
	quickNode = `trap exit TERM; while :; do /busybox sleep 1 & wait; done`
	slowNode  = `trap "/busybox sleep 1; exit" TERM; while :; do /busybox sleep 1 & wait; done`
)

// startDocker starts a real container engine behind the simulated faults.
func startDocker(t *testing.T) *simulatedEngine {
	t.Helper()
	tree := os.Getenv("TORPOR_ENGINE")
	if _, err := os.Stat(filepath.Join(tree, "usr/sbin/dockerd")); tree == "" || err != nil {
		t.Skipf("no real container engine: TORPOR_ENGINE is %q and names no folder with usr/sbin/dockerd: run make e2e-clouds on Debian", tree)
	}
	if os.Getuid() != 0 {
		t.Skip("no real container engine: it makes containers as root only")
	}
	engine, dir := startEngine(t), t.TempDir()
	socket := filepath.Join(dir, "docker.sock")
	process := testenv.StartProcess(t, filepath.Join(tree, "usr/sbin/dockerd"), []string{
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--host", "unix://" + socket,
		// The network of the machine that runs the test is not changed.
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver=vfs",
	}, []string{
		"PATH=" + filepath.Join(tree, "usr/bin") + ":" + filepath.Join(tree, "usr/sbin") + ":" + os.Getenv("PATH"),
		"LD_LIBRARY_PATH=" + findLibraries(t, tree),
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	engine.docker = &http.Client{Transport: transport}
	engine.proxy = &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" }}
	testenv.Eventually(t, "the engine answers", func() error {
		select {
		case <-process.ExitChannel():
			t.Fatal("the engine has ended")
		default:
		}
		return engine.askDocker(context.WithoutCancel(t.Context()), http.MethodGet, "/_ping", nil, nil)
	})
	engine.importImage(t, filepath.Join(tree, "bin/busybox"))
	return engine
}

func findLibraries(t *testing.T, tree string) string {
	t.Helper()
	var all string
	for _, pattern := range []string{"usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		testenv.ExpectNoError(t, err)
		for _, folder := range found {
			all += folder + ":"
		}
	}
	return all
}

// importImage creates the image of the nodes, which consists of one program.
func (s *simulatedEngine) importImage(t *testing.T, program string) {
	t.Helper()
	content, err := os.ReadFile(program)
	testenv.ExpectNoError(t, err)
	var image bytes.Buffer
	archive := tar.NewWriter(&image)
	testenv.ExpectNoError(t, archive.WriteHeader(&tar.Header{Name: "busybox", Mode: 0o755, Size: int64(len(content))}))
	_, err = archive.Write(content)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, archive.Close())
	testenv.ExpectNoError(t, s.askDocker(t.Context(), http.MethodPost, "/images/create?fromSrc=-&repo=node&tag=1", &image, nil))
}

// askDocker sends a request directly to the engine, without the actuator.
func (s *simulatedEngine) askDocker(ctx context.Context, method, path string, body io.Reader, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := s.docker.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: status %s: %.300s (%w)", method, path, response.Status, content, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

// dockerCluster is a cluster with containers of a real engine as its nodes.
type dockerCluster struct{ *simulatedCluster }

// Create creates containers and starts them. Every third container stops slowly. The containers are removed at the end
// of the test.
func (c dockerCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		script := quickNode
		if i%3 == 2 {
			script = slowNode
		}
		wanted, err := json.Marshal(map[string]any{
			"Image": nodeImage, "Cmd": []string{"/busybox", "sh", "-c", script}, "Labels": map[string]string{kindLabel: c.infraID},
			"HostConfig": map[string]string{"NetworkMode": "none"},
		})
		testenv.ExpectNoError(t, err)
		var made struct{ ID string }
		testenv.ExpectNoError(t, c.askDocker(t.Context(), http.MethodPost, "/containers/create", bytes.NewReader(wanted), &made))
		testenv.ExpectNoError(t, c.askDocker(t.Context(), http.MethodPost, "/containers/"+made.ID+"/start", nil, nil))
		ids = append(ids, made.ID)
		t.Cleanup(func() {
			testenv.ExpectNoError(t, c.askDocker(context.WithoutCancel(t.Context()), http.MethodDelete, "/containers/"+made.ID+"?force=1", nil, nil))
		})
	}
	return ids
}

// Settle implements actuatortest.Cloud.
func (c dockerCluster) Settle(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "no container of "+c.infraID+" is about to stop", func() error {
		machines, err := c.actuator.Observe(t.Context(), c.Target())
		for _, m := range machines {
			if m.State == actuator.Starting || m.State == actuator.Stopping {
				return fmt.Errorf("container %s is %s", m.ID, m.State)
			}
		}
		return err
	})
}

// ShutDown implements actuatortest.ShutdownCloud.
func (c dockerCluster) ShutDown(t *testing.T, id string) {
	t.Helper()
	testenv.ExpectNoError(t, c.askDocker(t.Context(), http.MethodPost, "/containers/"+id+"/pause", nil, nil))
}

func TestContractAtARealDocker(t *testing.T) {
	engine := startDocker(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return dockerCluster{engine.newCluster()} })
}
