// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const commandTimeout = 2 * time.Minute

// commandResult is what came of a command.
type commandResult struct {
	code     exit.Code
	out, err string
}

// runPlugin runs the plugin as a person types it, without "kubectl moco".
func (e *environment) runPlugin(t *testing.T, args ...string) commandResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	var out, said bytes.Buffer
	plugin := moco.NewPlugin(moco.Streams{In: strings.NewReader(""), Out: &out, Err: &said})
	code := plugin.Run(ctx, append([]string{"--kubeconfig", e.KubeconfigPath(t), "--namespace", e.name.Namespace}, args...))
	return commandResult{exit.Code(code), out.String(), said.String()}
}

// runKubectl runs the real kubectl.
func (e *environment) runKubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	line := append([]string{"--kubeconfig", e.KubeconfigPath(t), "--namespace", e.name.Namespace}, args...)
	out, err := exec.CommandContext(ctx, path, line...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// stopByPlugin stops clustering with the plugin and returns when nothing is done to the servers any more.
func (e *environment) stopByPlugin(t *testing.T, args ...string) {
	t.Helper()
	if ran := e.runPlugin(t, append([]string{"stop", "clustering", clusterName, "--wait"}, args...)...); ran.code != exit.Done {
		t.Fatalf("expected clustering to stop, found %+v", ran)
	}
}

// waitForLooks returns when the manager has looked at the cluster twice more, so that one look began after this was called.
func (e *environment) waitForLooks(t *testing.T) {
	t.Helper()
	const looks = 2
	checks := e.metricValue(t, "moco_cluster_checks_total")
	testenv.Eventually(t, "the manager has looked", func() error {
		e.triggerPass(t)
		if e.metricValue(t, "moco_cluster_checks_total") < checks+looks {
			return errors.New("not yet")
		}
		return nil
	})
}

func annotationNames(of map[string]string) []string { return slices.Collect(maps.Keys(of)) }
