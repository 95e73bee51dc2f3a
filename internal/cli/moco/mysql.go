// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco/checksum"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

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
		Short: "Run the mysql client in an instance",
		Example: `  # Query the primary
  kubectl moco mysql test -- -N -e 'SELECT VERSION()'

  # Open a session with instance 2
  kubectl moco mysql --index 2 -it test

  # Run a file
  kubectl moco mysql -u moco-writable -i test < sample.sql`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE:              s.runMysql,
	}
	f := cmd.Flags()
	f.StringVarP(&s.user, "mysql-user", "u", defaultUser, "MySQL user: moco-admin, moco-readonly, moco-writable")
	f.IntVar(&s.index, "index", -1, "ordinal of the instance; a negative value means the primary")
	f.BoolVarP(&s.stdin, "stdin", "i", false, "pass standard input to the client")
	f.BoolVarP(&s.tty, "tty", "t", false, "give the client a terminal; standard input must be a terminal")
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
		primary, chosen := c.Status.Primary()
		if !chosen {
			return fmt.Errorf("%s: expected a primary, found none chosen yet; wait until the cluster is healthy, or select an instance with --index", describeCluster(c))
		}
		index = primary
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
		// The client has already printed its error.
		return exit.Error{Code: exit.Code(ended.Code)}
	}
	if err != nil {
		return fmt.Errorf("run mysql in pod %s: %w", c.PodName(index), err)
	}
	return nil
}

// commandLine returns the client's command line. The option file with the user's password is in the container.
func (s *mysqlSession) commandLine(args []string) []string {
	return append([]string{"mysql", "--defaults-extra-file=/mysql-credentials/" + s.user + "-my.cnf"}, args...)
}

// streamOptions connects the client's streams. A terminal is in raw mode until restore is called.
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
		return o, nil, exit.WrongUsage("--tty: expected standard input to be a terminal, found another input; omit this flag")
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

type fixedTerminalSize struct{ size *remotecommand.TerminalSize }

// Next returns the size of the terminal once, and then nil.
func (o *fixedTerminalSize) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}

// newExecutor returns an executor that runs a program in a Pod over WebSocket, or over SPDY if the upgrade to WebSocket
// or an HTTPS proxy fails.
func (kube *kubeClient) newExecutor(pod string, o *corev1.PodExecOptions) (remotecommand.Executor, error) {
	cfg := rest.CopyConfig(kube.config)
	cfg.Timeout = 0 // An interactive session has no time limit.
	cfg.APIPath, cfg.GroupVersion, cfg.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
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

const defaultUser = mysqlusers.ReadOnlyUser

func accountNames() []string {
	var names []string
	for _, a := range mysqlusers.ListAccounts() {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

func (a *commands) newCredentialCommand() *cobra.Command {
	var user, format string
	cmd := &cobra.Command{
		Use:   "credential NAME",
		Short: "Print the password of a MySQL user",
		Example: `  # For your own client
  kubectl moco credential -u moco-writable test

  # As an options file
  kubectl moco credential --format mycnf test > my.cnf`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "plain" && format != "mycnf" {
				return exit.WrongUsage("--format: expected plain or mycnf, found %q", format)
			}
			password, err := a.readPassword(cmd, args[0], user)
			if err != nil {
				return err
			}
			if format == "plain" {
				fmt.Fprintln(a.Out, password)
				return nil
			}
			escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(password)
			fmt.Fprintf(a.Out, "[client]\nuser=\"%s\"\npassword=\"%s\"\n", user, escaped)
			return nil
		},
	}
	cmd.Flags().StringVarP(&user, "mysql-user", "u", defaultUser, "MySQL user: "+strings.Join(accountNames(), ", "))
	cmd.Flags().StringVar(&format, "format", "plain", "plain or mycnf")
	return cmd
}

func (a *commands) readPassword(cmd *cobra.Command, name, user string) (string, error) {
	key := mysqlusers.PasswordKeyOf(user)
	if key == "" {
		return "", exit.WrongUsage("--mysql-user: expected one of %q, found %q", accountNames(), user)
	}
	kube, c, err := a.openCluster(cmd.Context(), name)
	if err != nil {
		return "", err
	}
	var secret corev1.Secret
	if err := kube.Get(cmd.Context(), client.ObjectKey{Namespace: c.Namespace, Name: c.ChildName()}, &secret); err != nil {
		return "", fmt.Errorf("%s: read its Secret %s: %w", describeCluster(c), c.ChildName(), err)
	}
	password, found := secret.Data[key]
	if !found {
		return "", fmt.Errorf("%s: expected the key %s in its Secret %s, found none", describeCluster(c), key, secret.Name)
	}
	return string(password), nil
}

// checksumTimeout is the default time limit for all tables together.
const checksumTimeout = 10 * time.Minute

func (a *commands) newChecksumCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "checksum NAME",
		Short: "Compare the rows of all instances at one GTID set",
		Long: `Compare the rows of all instances at one GTID set, since equal GTIDs do not prove equal rows.
It only reads, as moco-readonly: it opens a snapshot in every instance, and if all of them have executed the same
transactions it runs CHECKSUM TABLE on every InnoDB table of users, one after the other. The instances have to read
all rows, and changes to those tables' definitions wait until the end. If the command is interrupted, each server still
finishes the table that it has begun.
It cannot compare instances that do not answer, instances that never reach one GTID set, different versions of MySQL,
and tables of other engines. It reports these, with exit code 1, as it does if rows differ.`,
		Example: `  # After GTIDs were changed by hand, before clustering starts again
  kubectl moco checksum test`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return exit.WrongUsage("--timeout: expected a duration above zero such as 10m, found %s", timeout)
			}
			kube, c, err := a.openCluster(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			p := checksum.TableComparison{Out: a.Out, Clock: a.clock, RunMysql: func(ctx context.Context, i int, args []string, in io.Reader, out io.Writer) error {
				return a.runClient(ctx, kube, c.PodName(i), args, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: a.Err})
			}}
			return p.CompareInstances(ctx, int(c.Spec.Replicas))
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", checksumTimeout, "maximum duration")
	return cmd
}

func (a *commands) runClient(ctx context.Context, kube *kubeClient, pod string, args []string, o remotecommand.StreamOptions) error {
	command := (&mysqlSession{commands: a, user: defaultUser}).commandLine(args)
	executor, err := kube.newExecutor(pod, &corev1.PodExecOptions{Container: mocov1beta2.MysqldContainer, Command: command, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	if err := executor.StreamWithContext(ctx, o); err != nil {
		return fmt.Errorf("run mysql in pod %s: %w", pod, err)
	}
	return nil
}
