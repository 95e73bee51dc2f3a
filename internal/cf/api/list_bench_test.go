// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	manyApps   = 5000
	manySpaces = 10
)

// TestLists measures lists of 5,000 apps. Making them takes half a minute, so it is done on demand.
func TestLists(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected 1, to measure lists of 5,000 apps")
	}
	e := newTestEnv(t)
	spaces := make([]string, manySpaces)
	for i := range spaces {
		spaces[i] = e.createSpace(t)
	}
	e.createManyApps(t, spaces)
	alice := e.callerNamed(t, "alice")
	for _, path := range []string{
		"/v3/apps?order_by=name&per_page=5000", "/v3/processes?embed=process_instances&per_page=5000",
		"/v3/apps?order_by=name&per_page=50", "/v3/apps?names=app-7&space_guids=" + spaces[7],
	} {
		// The limit is far above what is aimed for, which is 100 ms.
		const rounds, slow = 100, time.Second
		took := make([]time.Duration, rounds)
		size := 0
		for i := range took {
			a := alice.get(t, path)
			if took[i], size = a.took, len(a.body); a.status != http.StatusOK {
				t.Fatalf("%s: found %d", path, a.status)
			}
		}
		slices.Sort(took)
		t.Logf("%s: %d kB, median %s, p99 %s", path, size/1000, took[rounds/2], took[rounds-2])
		if took[rounds-2] > slow {
			t.Errorf("%s: found %s, want far less", path, took[rounds-2])
		}
	}
}

// createManyApps makes the apps and their processes.
func (e *testEnv) createManyApps(t *testing.T, spaces []string) {
	t.Helper()
	const writers = 8
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := writer; i < manyApps; i += writers {
				name, space := "app-"+strconv.Itoa(i), spaces[i%len(spaces)]
				app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)}}
				app.Spec = korifiv1alpha1.CFAppSpec{DisplayName: name, DesiredState: korifiv1alpha1.StoppedState, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}}
				if err := e.Client.Create(t.Context(), app); err != nil {
					t.Error(err)
					return
				}
				p := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: revision.ProcessName(app.Name, "web")}}
				p.Spec = korifiv1alpha1.CFProcessSpec{AppRef: korifiv1alpha1.Reference{Name: app.Name}, ProcessType: "web", DesiredInstances: new(int32(3)), MemoryMB: 64, DiskQuotaMB: 64}
				if err := e.Client.Create(t.Context(), p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	alice := e.callerNamed(t, "alice")
	testenv.Eventually(t, "the API knows all apps", func() error {
		if n := alice.get(t, "/v3/processes?per_page=1").field(t, "pagination.total_results"); n != strconv.Itoa(manyApps) {
			return fmt.Errorf("found %s", n)
		}
		return nil
	})
}
