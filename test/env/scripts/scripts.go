// SPDX-License-Identifier: Apache-2.0

// Package scripts runs command lines of kubectl's plugins with the real kubectl against a real API server.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// Command is a command that scripts can use.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Run runs the scripts of testdata/*.txtar. Each script has its own namespace, which is named after it. In addition
// to the commands of the caller, a script can use:
//
//	code N COMMAND...  runs a command and expects the exit code N
//	apply FILE...      creates objects with their statuses
//
// TORPOR_UPDATE=1 writes the actual output into the scripts.
func Run(t *testing.T, server *testenv.Environment, commands map[string]Command) {
	t.Helper()
	RunFolder(t, server, "testdata", commands)
}

// RunFolder is like Run, but runs the scripts of another folder.
func RunFolder(t *testing.T, server *testenv.Environment, folder string, commands map[string]Command) {
	t.Helper()
	all := map[string]Command{
		"code":  runWithExitCode,
		"apply": func(ts *testscript.TestScript, neg bool, args []string) { applyFiles(t.Context(), ts, neg, args) },
	}
	maps.Copy(all, commands)
	testscript.Run(t, testscript.Params{
		Dir:                 folder,
		Setup:               func(env *testscript.Env) error { return prepare(t.Context(), server, env) },
		Cmds:                all,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("TORPOR_UPDATE") == "1",
	})
}

type (
	namespaceKey struct{}
	clientKey    struct{}
)

// NamespaceOf returns the namespace of a script.
func NamespaceOf(ts *testscript.TestScript) string {
	namespace, _ := ts.Value(namespaceKey{}).(string)
	return namespace
}

// prepare creates the namespace of a script, and a kubeconfig for it.
func prepare(ctx context.Context, server *testenv.Environment, env *testscript.Env) error {
	// The folder of a script is named after it.
	namespace := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	if err := server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	env.Values[namespaceKey{}], env.Values[clientKey{}] = namespace, client.NewNamespacedClient(server.Client, namespace)
	file, err := clientcmd.LoadFromFile(server.KubeconfigPath(nil))
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	file.Contexts[file.CurrentContext].Namespace = namespace
	path := filepath.Join(env.WorkDir, "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	env.Setenv("KUBECONFIG", path)
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("TZ", "UTC")
	// The real kubectl is in the same folder as local.
	env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(os.Getenv("TORPOR_LOCAL")))
	return nil
}

func runWithExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("expected exit code %d, found %d", want, got)
	}
}

func applyFiles(ctx context.Context, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: apply FILE...")
	}
	kube := ts.Value(clientKey{}).(client.Client)
	for _, file := range args {
		var written unstructured.Unstructured
		ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(file)), &written.Object))
		status, found := written.Object["status"]
		ts.Check(kube.Create(ctx, &written, client.FieldOwner("script")))
		if found {
			written.Object["status"] = status
			ts.Check(kube.Status().Update(ctx, &written, client.FieldOwner("script-status")))
		}
	}
}
