// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// mysqlSession is a run of the program mysql in the container of a server.
type mysqlSession struct {
	*commands
	user       string
	index      int
	stdin, tty bool
}

func (a *commands) newMysqlCommand() *cobra.Command {
	s := &mysqlSession{commands: a}
	cmd := &cobra.Command{
		Use:   "mysql NAME [-- ARGS...]",
		Short: "Run the program mysql in an instance",
		Example: `  # Ask the primary
  kubectl moco mysql test -- -N -e 'SELECT VERSION()'

  # Talk to instance 2
  kubectl moco mysql --index 2 -it test

  # Run a file
  kubectl moco mysql -u moco-writable -i test < sample.sql`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE:              s.runMysql,
	}
	f := cmd.Flags()
	f.StringVarP(&s.user, "mysql-user", "u", defaultUser, "who logs in: moco-admin, moco-readonly, moco-writable")
	f.IntVar(&s.index, "index", -1, "ordinal of the instance; below zero is the primary")
	f.BoolVarP(&s.stdin, "stdin", "i", false, "pass the input on")
	f.BoolVarP(&s.tty, "tty", "t", false, "the input is a terminal")
	return cmd
}

func (s *mysqlSession) runMysql(cmd *cobra.Command, args []string) error {
	if users := []string{"moco-admin", defaultUser, "moco-writable"}; !slices.Contains(users, s.user) {
		return exit.WrongUsage("--mysql-user: expected one of %q, found %q", users, s.user)
	}
	kube, c, err := s.openCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	index := s.index
	if index < 0 {
		index = c.Status.CurrentPrimaryIndex
	}
	if index >= int(c.Spec.Replicas) {
		return exit.WrongUsage("--index: expected an instance of %s, which are 0 to %d, found %d", describeCluster(c), c.Spec.Replicas-1, index)
	}
	executor, err := kube.newExecutor(c.PodName(index), &corev1.PodExecOptions{
		Container: mocov1beta2.MysqldContainer, Command: s.commandLine(args[1:]),
		Stdin: s.stdin, Stdout: true, Stderr: !s.tty, TTY: s.tty,
	})
	if err != nil {
		return err
	}
	options, restore, err := s.streamOptions()
	if err != nil {
		return err
	}
	defer restore()
	err = executor.StreamWithContext(cmd.Context(), options)
	if ended, ok := errors.AsType[exec.CodeExitError](err); ok {
		// The program has said itself what is wrong.
		return exit.Error{Code: exit.Code(ended.Code)}
	}
	if err != nil {
		return fmt.Errorf("run mysql in pod %s: %w", c.PodName(index), err)
	}
	return nil
}

// commandLine is the program with the file in the container that holds the user's password.
func (s *mysqlSession) commandLine(args []string) []string {
	return append([]string{"mysql", "--defaults-extra-file=/mysql-credentials/" + s.user + "-my.cnf"}, args...)
}

// streamOptions connects the program's streams. A terminal is raw until restore is called.
func (s *mysqlSession) streamOptions() (remotecommand.StreamOptions, func(), error) {
	o := remotecommand.StreamOptions{Stdout: s.Out, Tty: s.tty}
	if s.stdin {
		o.Stdin = s.In
	}
	if !s.tty {
		o.Stderr = s.Err
		return o, func() {}, nil
	}
	fd, ok := terminalDescriptor(s.In)
	if !ok {
		return o, nil, exit.WrongUsage("--tty: expected the input to be a terminal, found something else; leave it out")
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return o, nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	width, height, err := term.GetSize(fd)
	if err == nil {
		o.TerminalSizeQueue = &fixedTerminalSize{size: &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}}
	}
	return o, func() { _ = term.Restore(fd, before) }, nil
}

func terminalDescriptor(in io.Reader) (int, bool) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	return int(file.Fd()), true
}

// fixedTerminalSize is the size that the terminal has at the beginning.
type fixedTerminalSize struct{ size *remotecommand.TerminalSize }

// Next returns the size, and then that there are no more.
func (o *fixedTerminalSize) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}

// newExecutor runs a program in a pod, by WebSocket, or by SPDY where an old proxy is in between.
func (kube *kubeClient) newExecutor(pod string, o *corev1.PodExecOptions) (remotecommand.Executor, error) {
	cfg := rest.CopyConfig(kube.config)
	cfg.Timeout = 0 // A session lasts as long as people type.
	cfg.APIPath, cfg.GroupVersion, cfg.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	url := c.Post().Namespace(kube.namespace).Resource("pods").Name(pod).SubResource("exec").VersionedParams(o, scheme.ParameterCodec).URL()
	socket, err := remotecommand.NewWebSocketExecutor(cfg, "GET", url.String())
	if err != nil {
		return nil, fmt.Errorf("prepare to run in pod %s: %w", pod, err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(cfg, "POST", url)
	if err != nil {
		return nil, fmt.Errorf("prepare to run in pod %s: %w", pod, err)
	}
	both, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to run in pod %s: %w", pod, err)
	}
	return both, nil
}
