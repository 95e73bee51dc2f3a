// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// repeatUntilRefused writes a text until the reader closes the connection, or up to a number of bytes.
func repeatUntilRefused(w io.Writer, text string, atMost int) {
	text = strings.Repeat(text, 1+(64<<10)/len(text))
	for sent := 0; sent < atMost; sent += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// TestHostileAnswersAreCut uses servers that try to exhaust the client's memory or time.
func TestHostileAnswersAreCut(t *testing.T) {
	const muchMore, maxHeapGrowth = 400 << 20, 64 << 20
	var bomb bytes.Buffer
	g := gzip.NewWriter(&bomb)
	repeatUntilRefused(g, " ", 100<<20)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	list := func(c *ClusterClient) error { _, err := c.ListRequests(t.Context()); return err }
	listNodes := func(c *ClusterClient) error { _, err := c.ListNodes(t.Context()); return err }
	listPods := func(c *ClusterClient) error { _, err := c.ListWorkerPods(t.Context(), nil); return err }
	probe := func(c *ClusterClient) error { return c.Probe(t.Context()) }
	listPage := func(c *ClusterClient) error {
		return c.ListPage(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "default", func([]byte) error { return nil })
	}
	apply := func(c *ClusterClient) error {
		name := ObjectName{corev1.SchemeGroupVersion.WithKind("ConfigMap"), types.NamespacedName{Name: "a"}}
		return c.NewObjectWriter("test").Apply(t.Context(), name, []byte("{}"))
	}
	for name, row := range map[string]struct {
		answer func(http.ResponseWriter)
		ask    func(*ClusterClient) error
		want   error
	}{
		"compressed answer that grows a thousandfold is cut off": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, probe, httpguard.ErrAnswerTooLarge},
		"endless answer to a probe is cut off": {func(w http.ResponseWriter) { repeatUntilRefused(w, "ok", muchMore) }, probe, httpguard.ErrAnswerTooLarge},
		"endless error answer is cut off": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			repeatUntilRefused(w, "no", muchMore)
		}, probe, nil},
		"endless list of empty objects is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{}`)
			repeatUntilRefused(w, ",{}", muchMore)
		}, list, errTooManyItems},
		"endless object is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"`)
			repeatUntilRefused(w, "a", muchMore)
		}, list, httpguard.ErrAnswerTooLarge},
		"endless white space is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[`)
			repeatUntilRefused(w, " ", muchMore)
		}, list, httpguard.ErrAnswerTooLarge},
		"endless page of large objects is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{}`)
			repeatUntilRefused(w, `,{"metadata":{"name":"`+strings.Repeat("a", 1<<20)+`"}}`, muchMore)
		}, list, httpguard.ErrAnswerTooLarge},
		"endless lists inside of objects are cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{"status":{"conditions":[{}`)
			repeatUntilRefused(w, ",{}", 2<<20)
			_, _ = io.WriteString(w, `]}}]}`)
		}, list, httpguard.ErrAnswerTooLarge},
		"endless list of served kinds is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"resources":[{}`)
			repeatUntilRefused(w, ",{}", muchMore)
		}, apply, errMalformed},
		"endless page of objects is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{}`)
			repeatUntilRefused(w, ",{}", muchMore)
		}, listPage, errTooManyItems},
		"list of more than one page is refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"metadata":{"continue":"more"},"items":[]}`)
		}, listPage, errTooManyItems},
		"endless answer to an applied object is cut off": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`)
			repeatUntilRefused(w, " ", muchMore)
		}, apply, httpguard.ErrAnswerTooLarge},
		"endless sequence of pages is refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"metadata":{"continue":"more"},"items":[]}`)
		}, listNodes, errTooManyItems},
		"nodes with too many addresses are refused": {func(w http.ResponseWriter) { // They are also decoded as leases, which are harmless and fit into one page.
			node := `,{"status":{"addresses":[{}` + strings.Repeat(",{}", 20_000) + `]}}`
			_, _ = io.WriteString(w, `{"items":[{}`+strings.Repeat(node, 250)+`]}`)
		}, listNodes, errTooManyNodes},
		"leases with very long names are refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"items":[{}`)
			repeatUntilRefused(w, `,{"metadata":{"name":"`+strings.Repeat("a", 254)+`"},"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}`, muchMore)
		}, listNodes, errMalformed},
		"endless list of pods is cut off": {func(w http.ResponseWriter) {
			pod := `{"metadata":{"namespace":"a","name":"b"}}`
			_, _ = io.WriteString(w, `{"items":[`+pod)
			repeatUntilRefused(w, ","+pod, muchMore)
		}, listPods, errTooManyItems},
		"answer that is not a list is malformed":  {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `["items"]`) }, listNodes, errMalformed},
		"items that are not a list are malformed": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"items":"all"}`) }, listNodes, errMalformed},
		"truncated list is malformed":             {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"items":[{}`) }, listNodes, errMalformed},
		"item that is not an object is malformed": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"items":[7]}`) }, listNodes, errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialHostile(t, row.answer)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := row.ask(c)
			runtime.ReadMemStats(&after)
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("found %v, want %v", err, row.want)
			}
			if got := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && got > maxHeapGrowth {
				t.Errorf("the heap grew by %d MiB, want at most %d", got>>20, maxHeapGrowth>>20)
			}
		})
	}
}

// dialHostile returns a client of a server that always returns the same answer.
func dialHostile(t *testing.T, answer func(http.ResponseWriter)) *ClusterClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	t.Cleanup(server.Close)
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.callTimeout = time.Minute // On a busy machine, the default timeout would expire before the byte budget is used up.
	return c
}

// TestHostileListsAreNotKept uses servers whose lists are within the byte budgets, but multiply in size when they are
// decoded.
func TestHostileListsAreNotKept(t *testing.T) {
	const maxKept = 16 << 20
	requests := func(c *ClusterClient) (any, error) { return c.ListRequests(t.Context()) }
	machines := func(c *ClusterClient) (any, error) { return c.ListMachines(t.Context()) }
	request := func(spec, status string) string {
		return `{"spec":{"signerName":"kubernetes.io/kubelet-serving"` + spec + `},"status":{` + status + `}}`
	}
	list := func(element string, count int) string {
		return "[" + element + strings.Repeat(","+element, count-1) + "]"
	}
	for name, row := range map[string]struct {
		item  string
		count int
		ask   func(*ClusterClient) (any, error)
		want  error
	}{
		"requests with many conditions are shortened":                     {request("", `"conditions":`+list("{}", 21_000)), 100, requests, nil},
		"requests with many groups are shortened":                         {request(`,"groups":`+list(`""`, 21_000), ""), 100, requests, nil},
		"requests with many usages are shortened":                         {request(`,"usages":`+list(`""`, 21_000), ""), 100, requests, nil},
		"many requests with the maximum number of conditions are refused": {request("", `"conditions":`+list("{}", maxRequestElements)), maxItems, requests, errTooMuchToKeep},
		"Machines with many addresses are shortened":                      {`{"status":{"addresses":` + list("{}", 21_000) + `}}`, 100, machines, nil},
		"many Machines with the maximum number of addresses are refused":  {`{"status":{"addresses":` + list("{}", maxMachineAddresses) + `}}`, maxItems, machines, errTooMuchToKeep},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialHostile(t, func(w http.ResponseWriter) {
				_, _ = io.WriteString(w, `{"items":[`+row.item)
				for range row.count - 1 {
					_, _ = io.WriteString(w, ","+row.item)
				}
				_, _ = io.WriteString(w, `]}`)
			})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			kept, err := row.ask(c)
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(kept)
			if !errors.Is(err, row.want) {
				t.Errorf("found %v, want %v", err, row.want)
			}
			if after.HeapAlloc > before.HeapAlloc+maxKept {
				t.Errorf("%d MiB are kept, want at most %d", (after.HeapAlloc-before.HeapAlloc)>>20, maxKept>>20)
			}
		})
	}
}

// TestCredentialsStayWithTheServer redirects a client to another host.
func TestCredentialsStayWithTheServer(t *testing.T) {
	var strangers atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, listErr := c.ListRequests(t.Context())
	for _, err := range []error{c.Probe(t.Context()), listErr} {
		if want := "the server responds with a redirect (307), which is not followed"; err == nil || DescribeError(err) != want {
			t.Errorf("found %v, want it to be described as %q", err, want)
		}
	}
	if n := strangers.Load(); n > 0 {
		t.Errorf("expected no request to another host, found %d", n)
	}
}

// TestResolvedAddressesAreChecked dials a name that resolves to the address of a metadata service.
func TestResolvedAddressesAreChecked(t *testing.T) {
	c, err := (Dialer{}).Dial(kubeconfig(t, "https://harmless.example.com", nil), hibernation.ServerOverride{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := c.transport.DialContext(ctx, "tcp", "169.254.169.254:80"); !errors.Is(err, httpguard.ErrAddressDenied) {
		t.Errorf("found %v, want %v", err, httpguard.ErrAddressDenied)
	}
	if want, got := httpguard.ErrAddressDenied.Error(), DescribeError(fmt.Errorf("probe: %w", httpguard.ErrAddressDenied)); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}
