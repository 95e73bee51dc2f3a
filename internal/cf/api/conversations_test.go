// SPDX-License-Identifier: Apache-2.0

package api

import (
	"path/filepath"
	"strings"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

// testConversations replays what the real client says, file by file.
func (w *testEnv) testConversations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected conversations in testdata, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			space := w.createSpace(t)
			alice := w.callerNamed(t, "alice")
			conversation.ReplayFile(t, file, conversation.APIEnvironment{
				URL: w.url, Vars: map[string]string{"space": space, "org": w.org, "url": w.url},
				Send: func(t *testing.T, method, path, body string) conversation.APIAnswer {
					t.Helper()
					a := alice.send(t, method, path, body)
					return conversation.APIAnswer{Status: a.status, Location: a.location, Body: a.body}
				},
				App: func(t *testing.T, name string, instances int32, state string) string {
					t.Helper()
					return w.createApp(t, space, name, instances, korifiv1alpha1.AppState(state))
				},
				Pod: func(t *testing.T, app, index string) {
					t.Helper()
					w.createPod(t, space, app, index)
				},
			})
		})
	}
}

// jsonField is a value of some JSON.
func jsonField(t *testing.T, body, path string) string {
	t.Helper()
	return conversation.JSONField(t, body, path)
}
