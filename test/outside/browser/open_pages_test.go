// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// openPages are the pages that pageUsers have opened: fewer than the limit of each user.
	openPages, pageUsers = 200, 40
	// changes is the number of measured updates.
	changes = 20
)

// createClusters creates clusters that run.
func (e *pageEnv) createClusters(t *testing.T, n int) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(8)
	for i := range n {
		writers.Go(func() error {
			name := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "cluster-" + strconv.Itoa(i)}
			return e.Client.Create(t.Context(), testenv.BuildClusterDeployment(name, "cloud", "kubeconfig"))
		})
	}
	testenv.ExpectNoError(t, writers.Wait())
}

// TestBenchOpenPages measures the memory of a manager with two hundred open pages about five thousand objects, and how soon
// all of them have a change.
func TestBenchOpenPages(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected `make bench NAME=page`")
	}
	e := newPageEnv(t)
	e.createClusters(t, manyObjects)
	tokens := e.createUsers(t)
	address := testenv.FreeAddress(t)
	manager := testenv.StartProcess(t, testenv.TorporPath(t), []string{
		"manager", "--kubeconfig", e.KubeconfigPath(t), "--namespace", metav1.NamespaceDefault, "--controllers", "slumber",
		"--metrics-address", "0", "--probe-address", testenv.FreeAddress(t), "--page-address", address,
	}, nil)
	testenv.Eventually(t, "the page lists all objects", func() error { return expectListed(t, address, tokens[0]) })
	memory := watchMemory(t, manager.PID())
	before := memory.reset()
	pages := openStreams(t, address, tokens)
	var slowest, medians []float64
	for i := range changes {
		all := pages.awaitChange(t, func() { e.changeCluster(t, i) })
		slowest, medians = append(slowest, all[len(all)-1]), append(medians, all[len(all)/2])
	}
	slices.Sort(slowest)
	slices.Sort(medians)
	testenv.MergeFigures(t, "page.json", map[string]float64{
		"pages_before_mib": before, "pages_more_mib": memory.reset() - before,
		"pages_update_seconds": medians[changes/2], "pages_update_slowest_page_seconds": slowest[changes/2],
	})
}

// createUsers creates service accounts that may see all clusters, and returns their tokens.
func (e *pageEnv) createUsers(t *testing.T) (tokens []string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "users"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-switch-operator"},
	}
	for i := range pageUsers {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "user-" + strconv.Itoa(i)}}
		e.ExpectCreated(t, account)
		request := &authenticationv1.TokenRequest{}
		testenv.ExpectNoError(t, e.Client.SubResource("token").Create(t.Context(), account, request))
		tokens = append(tokens, request.Status.Token)
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name})
	}
	e.ExpectCreated(t, binding)
	return tokens
}

func requestPage(ctx context.Context, address, path, token string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultClient.Do(request)
}

func expectListed(t *testing.T, address, token string) error {
	answer, err := requestPage(t.Context(), address, "/", token)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	listed := fmt.Sprintf("of %d<", manyObjects)
	return errors.Join(err, answer.Body.Close(), testenv.ErrorIf(!strings.Contains(string(text), listed), "expected %q, found %d", listed, answer.StatusCode))
}

// changeCluster changes the state of a cluster, which is on the first page of a list that is sorted by name.
func (e *pageEnv) changeCluster(t *testing.T, i int) {
	t.Helper()
	cd := e.readCluster(t, "cluster-0")
	before := client.MergeFrom(cd.DeepCopy())
	cd.Status.PowerState = []string{"Running", "Resuming"}[i%2]
	cd.Status.Conditions = []metav1.Condition{{Type: hivev1.ClusterReadyCondition, Status: metav1.ConditionTrue, Reason: "Running", Message: fmt.Sprint("change ", i), LastTransitionTime: metav1.Now()}}
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cd, before))
}

// openedPages are streams of changes, with the times of their events.
type openedPages struct {
	mu      sync.Mutex
	times   []time.Time
	changed chan struct{}
}

// openStreams opens the streams, and waits until each has its first event.
func openStreams(t *testing.T, address string, tokens []string) *openedPages {
	t.Helper()
	p := &openedPages{changed: make(chan struct{}, 1)}
	var opened sync.WaitGroup
	for i := range openPages {
		answer, err := requestPage(t.Context(), address, "/events?sort=name", tokens[i%len(tokens)])
		testenv.ExpectNoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("expected 200 for stream %d, found %d", i, answer.StatusCode)
		}
		var first sync.Once
		opened.Add(1)
		go func() {
			lines := bufio.NewReader(answer.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data: ") {
					p.note()
					first.Do(opened.Done)
				}
			}
		}()
	}
	opened.Wait()
	return p
}

func (p *openedPages) note() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Now())
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// awaitChange makes a change after a quiet time, and returns after how many seconds each page has it.
func (p *openedPages) awaitChange(t *testing.T, change func()) (seconds []float64) {
	t.Helper()
	for quiet := false; !quiet; { // The pages collect changes for one second.
		select {
		case <-p.changed:
		case <-time.After(2 * time.Second):
			quiet = true
		}
	}
	p.mu.Lock()
	p.times = nil
	p.mu.Unlock()
	begin := time.Now()
	change()
	testenv.Eventually(t, "all pages have the change", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return testenv.ErrorIf(len(p.times) < openPages, "expected %d events, found %d", openPages, len(p.times))
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.times {
		seconds = append(seconds, at.Sub(begin).Seconds())
	}
	return seconds
}

// memoryWatch keeps the greatest resident memory of a process since the last reset.
type memoryWatch struct {
	read     func() float64
	greatest atomic.Uint64
}

func watchMemory(t *testing.T, pid int) *memoryWatch {
	t.Helper()
	w := &memoryWatch{read: func() float64 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0
		}
		pages, _ := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
		return pages * float64(os.Getpagesize()) / (1 << 20)
	}}
	testenv.RunInBackground(t, "the watch of the memory", func(ctx context.Context) error {
		for {
			w.greatest.Store(max(w.greatest.Load(), uint64(w.read())))
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return w
}

// reset returns the greatest memory since the last reset in MiB, and restarts the measurement.
func (w *memoryWatch) reset() float64 {
	greatest := max(w.greatest.Load(), uint64(w.read()))
	w.greatest.Store(0)
	return float64(greatest)
}
