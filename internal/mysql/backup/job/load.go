// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// loadDump feeds a dump to the client mysql. Its error has only MySQL's number and the line, because the words may hold data.
func loadDump(ctx context.Context, host, password string, packed io.Reader, schema string) (err error) {
	options, err := writeOptionFile(host, RestoreUser, password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("decompress the dump: %w", err)
	}
	defer plain.Close()
	source := &readErrorRecorder{from: plain}
	var complaints bytes.Buffer
	cmd := clientCommand(ctx, "mysql", []string{options.defaultsFlag(), "--default-character-set=utf8mb4", "--max-allowed-packet=1G", "--batch"})
	cmd.Stdin, cmd.Stderr = source, &limitedBuffer{to: &complaints, left: maxComplaint}
	if schema != "" {
		cmd.Stdin = filterSchema(source, schema)
	}
	if err := cmd.Run(); err != nil {
		if source.err != nil {
			return fmt.Errorf("read the dump: %w", source.err)
		}
		found := regexp.MustCompile(`ERROR (\d+).*? at line (\d+)`).FindStringSubmatch(complaints.String())
		if found == nil {
			return fmt.Errorf("mysql: %w", err)
		}
		return fmt.Errorf("mysql: %w: MySQL's error %s at line %s of the dump", err, found[1], found[2])
	}
	return nil
}

// readErrorRecorder keeps the error with which a read ended: exec.Cmd returns that of the program instead.
type readErrorRecorder struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (c *readErrorRecorder) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// filterSchema leaves out the sections of all other schemas. What comes before the first, with the GTID set, stays.
func filterSchema(from io.Reader, schema string) io.Reader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(copySections(w, bufio.NewReaderSize(from, lineBuffer), schema)) }()
	return r
}

func copySections(to io.Writer, from *bufio.Reader, schema string) error {
	// A line that is longer than the buffer comes in pieces, and only its first can begin a section.
	wanted, lineStart := true, true
	for {
		piece, err := from.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(piece, []byte(schemaSection)) {
			name := strings.TrimSuffix(strings.TrimSpace(string(piece[len(schemaSection):])), "`")
			wanted = strings.ReplaceAll(name, "``", "`") == schema
		}
		lineStart = err == nil
		if wanted {
			if _, err := to.Write(piece); err != nil {
				return fmt.Errorf("pass on the dump: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the dump: %w", err)
		}
	}
}
