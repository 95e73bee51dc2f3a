// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// CopyProgram copies the running program to a path, so another container of the Pod can run it with its own image.
func CopyProgram(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	defer func() { _ = from.Close() }() // The file was only read.
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("create the copy: %w", err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	return nil
}
