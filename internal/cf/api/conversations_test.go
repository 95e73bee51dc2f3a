// SPDX-License-Identifier: Apache-2.0

package api

import (
	"path/filepath"
	"strings"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// TestConversationsOfTheRealClient replays recorded requests of the real cf client. Each file is one conversation.
func TestConversationsOfTheRealClient(t *testing.T) {
	e := shared.Get(t)
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected conversations in testdata, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			space := e.createSpace(t)
			alice := e.callerNamed(t, "alice")
			conversation.ReplayFile(t, file, conversation.APIEnvironment{
				URL: e.url, Vars: map[string]string{"space": space, "org": e.org, "url": e.url},
				Send: func(t *testing.T, method, path, body string) conversation.APIAnswer {
					t.Helper()
					r := alice.send(t, method, path, body)
					return conversation.APIAnswer{Status: r.status, Location: r.location, Body: r.body}
				},
				App: func(t *testing.T, name string, instances int32, state string) string {
					t.Helper()
					return e.createApp(t, space, name, instances, korifiv1alpha1.AppState(state))
				},
				Pod: func(t *testing.T, app, index string) {
					t.Helper()
					e.createPodOn(t, "", space, app, index)
				},
			})
		})
	}
}
