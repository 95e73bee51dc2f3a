// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

// clientWaitDelay is how long a client may take to end after its context.
const clientWaitDelay = 10 * time.Second

// clientCommand prepares one of MySQL's own programs, found on the PATH, in an environment without the password.
func clientCommand(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, backup.PasswordVariable+"=") })
	cmd.WaitDelay = clientWaitDelay
	return cmd
}

// optionFile holds the login of a client. Command lines can be read by every process, this file only by its owner.
type optionFile struct{ dir string }

func writeOptionFile(host, user, password string) (*optionFile, error) {
	dir, err := os.MkdirTemp("", "torpor-") // In a Pod that is memory.
	if err != nil {
		return nil, fmt.Errorf("make a folder for the client's options: %w", err)
	}
	f := &optionFile{dir}
	var text strings.Builder
	text.WriteString("[client]\nget-server-public-key\n")
	for _, option := range [][2]string{
		{"host", host}, {"port", strconv.Itoa(adminPort)}, {"user", user}, {"password", password}, {"protocol", "tcp"},
	} {
		fmt.Fprintf(&text, "%s=\"%s\"\n", option[0], strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(option[1]))
	}
	if err := os.WriteFile(f.filePath(), []byte(text.String()), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write the client's options: %w", err), f.removeFolder())
	}
	return f, nil
}

func (f *optionFile) filePath() string { return filepath.Join(f.dir, "client.cnf") }

// defaultsFlag must be the first of the client's flags. With it no other option file is read.
func (f *optionFile) defaultsFlag() string { return "--defaults-file=" + f.filePath() }

func (f *optionFile) removeFolder() error {
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the client's options: %w", err)
	}
	return nil
}
