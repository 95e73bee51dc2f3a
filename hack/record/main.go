// SPDX-License-Identifier: Apache-2.0

// Command record runs a command, copies its output, and writes the output as a recording of a terminal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/utils/clock"
)

const usage = `Run a command and write its output to NAME.cast, which asciinema plays, and a picture of some
lines to NAME.svg.

  record --out=docs/recordings/nights --from='== stop it' .ci/demo-workloads --kubeconfig=FILE

Exit codes: 0 if the command succeeded and both files were written, 1 otherwise.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := recordCommand(ctx, clock.RealClock{}, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// recordCommand runs the command that follows the flags, and writes its recording. It writes no files if the command
// fails.
func recordCommand(ctx context.Context, clk clock.PassiveClock, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	name := flags.String("out", "", "path of the two output files, without their extensions")
	from := flags.String("from", "", "text with which the first line of the picture begins; empty selects the last lines")
	lines := flags.Int("lines", 24, "number of lines of the picture")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name == "" || flags.NArg() == 0 {
		return errors.New("expected --out=NAME and a command, found only one or neither; see record --help")
	}
	r := newRecording(clk, out)
	cmd := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
	cmd.Stdout, cmd.Stderr = r, r
	cmd.Env = append(os.Environ(), "CLICOLOR_FORCE=1")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", flags.Arg(0), err)
	}
	picture, err := r.drawPicture(*from, *lines)
	if err != nil {
		return err
	}
	cast, err := r.formatCast(filepath.Base(*name))
	if err != nil {
		return err
	}
	return errors.Join(writeFile(*name+".cast", cast), writeFile(*name+".svg", picture))
}

func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o600)
}
