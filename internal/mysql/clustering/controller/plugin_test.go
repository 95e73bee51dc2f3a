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

// ran is what came of a command.
type ran struct {
	code     exit.Code
	out, err string
}

// moco runs the plugin as somebody types it, without "kubectl moco".
func (w *world) moco(t *testing.T, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	var out, said bytes.Buffer
	plugin := moco.NewPlugin(moco.Streams{In: strings.NewReader(""), Out: &out, Err: &said})
	code := plugin.Run(ctx, append([]string{"--kubeconfig", w.hub.KubeconfigPath(t), "--namespace", w.name.Namespace}, args...))
	return ran{exit.Code(code), out.String(), said.String()}
}

// kubectl runs the real kubectl.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	line := append([]string{"--kubeconfig", w.hub.KubeconfigPath(t), "--namespace", w.name.Namespace}, args...)
	out, err := exec.CommandContext(ctx, path, line...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// quietly stops clustering with the plugin and returns when nothing is done to the servers any more.
func (w *world) quietly(t *testing.T, args ...string) {
	t.Helper()
	if ran := w.moco(t, append([]string{"stop", "clustering", theName, "--wait"}, args...)...); ran.code != exit.Done {
		t.Fatalf("expected clustering to stop, found %+v", ran)
	}
}

// looked returns when the manager has looked at the cluster twice more, so that one look began after this was called.
func (w *world) looked(t *testing.T) {
	t.Helper()
	const looks = 2
	checks := w.value(t, "moco_cluster_checks_total")
	testenv.Eventually(t, "somebody has looked", func() error {
		w.touch(t)
		if w.value(t, "moco_cluster_checks_total") < checks+looks {
			return errors.New("not yet")
		}
		return nil
	})
}

func keys(of map[string]string) []string { return slices.Collect(maps.Keys(of)) }
